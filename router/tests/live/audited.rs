//! The audit over the same random changes: it finds nothing while all is right, and each route that the mirror does not have.

use super::*;
use trieline_router::audit::answer::ask;
use trieline_router::audit::check::{Outcome, Parts};
use trieline_router::audit::full::Full;
use trieline_router::audit::sampler::{Sampled, Sampler};
use trieline_router::audit::{Kind, Part};
use trieline_router::kernel::addr::is_special;

impl Published {
    fn parts<'a>(&'a self, mirror: &'a Mirror) -> Parts<'a> {
        Parts {
            mirror,
            publisher: &self.publisher,
            actions: self.dataplane.actions_ref(),
            reader: self.publisher.reader(),
        }
    }
}

/// Compares addresses as samples are; differences, and how many addresses were compared with the kernel's answer.
pub(super) fn sampled<A: Tested + Sampled>(run: &mut Run, addresses: &[A]) -> (Vec<String>, usize) {
    let (mut differ, mut equal) = (Vec::new(), 0);
    for address in addresses.iter().filter(|address| !is_special(address.ip())) {
        let answer = ask(&mut run.requests, *address, 0).unwrap();
        match run.published.parts(&run.mirror).compare(TABLE_MAIN, *address, Some(&answer)) {
            Outcome::Differs(difference) => differ.push(difference.to_string()),
            Outcome::Equal => equal += 1,
            Outcome::Passed | Outcome::Skipped => {}
        }
    }
    (differ, equal)
}

/// An audit of everything.
pub(super) fn full(run: &Run) -> Full {
    let mut full = Full::new(false).unwrap();
    while !full.advance(&run.published.parts(&run.mirror)).unwrap() {}
    full
}

/// Routes that came, went and changed without the mirror are named, and no others.
#[test]
fn audit_names_routes_missing_in_the_mirror() {
    let Some(bed) = Bed::new("audit") else { return };
    in_thread(move || {
        enter_namespace(bed.0.name()).unwrap();
        let mut run = Run::new(bed, 99);
        let routes = "route add 10.64.0.0/16 via 10.1.0.2\nroute add 10.65.0.0/16 via 10.1.0.2\n\
             route add 10.66.0.0/16 nexthop via 10.1.0.2 nexthop via 10.2.0.9 weight 3\n\
             route add blackhole 10.67.0.0/16\nnexthop add id 7 via 10.1.0.3 dev n1\nroute add 10.68.0.0/16 nhid 7\n\
             neigh replace 10.1.0.2 lladdr 02:00:00:00:00:12 dev n1\nneigh replace 10.1.0.3 lladdr 02:00:00:00:00:14 dev n1\n";
        run.bed.batch("-4", routes);
        run.bed.batch("-6", "route add fd64::/32 via fd00:1::2\nroute add fd65::/32 via fd00:1::2\n");
        run.mirror.dump_kernel_state(&mut run.requests).unwrap();
        run.mirror.resync.lose_routes();
        let quiet = std::time::Instant::now() + Duration::from_secs(5);
        loop {
            run.settle();
            let found = full(&run);
            if found.differences.is_empty() {
                assert!(found.audited.routes > 10 && found.audited.lookups > found.audited.prefixes);
                assert!(found.audited.actions > 4 && found.audited.objects > 8);
                break;
            }
            assert!(std::time::Instant::now() < quiet, "{:#?}", found.differences);
        }
        // Nothing of this is followed.
        run.bed.batch("-4", "route del 10.64.0.0/16\nroute replace 10.65.0.0/16 via 10.2.0.9\nroute add 10.69.0.0/16 via 10.1.0.2\n");
        run.bed.batch("-6", "route del fd64::/32\n");
        run.bed.batch("-4", "neigh replace 10.1.0.2 lladdr 02:00:00:00:00:13 dev n1\n");
        // The routes by an object are the same, but not where they lead.
        run.bed
            .batch("-4", "nexthop replace id 7 via 10.1.0.4 dev n1\nrule add from 10.99.0.0/16 lookup 100\n");
        std::fs::write("/proc/sys/net/ipv4/conf/n1/rp_filter", "2").unwrap();
        let found = full(&run);
        let mut named: Vec<_> =
            found.differences.iter().map(|found| (found.kind, found.prefix.as_str())).collect();
        // The kernel adds these itself, once it knows that no other node has the address.
        named.retain(|(_, prefix)| !prefix.starts_with("fe80:"));
        named.sort_by_key(|(_, prefix)| *prefix);
        let link = run.mirror.kernel.links.values().find(|link| link.name == "n1").unwrap().ifindex;
        let neighbour = format!("neighbour 10.1.0.2 on link {link}");
        let settings = format!("settings of link {link}");
        let rule =
            named.iter().map(|(_, name)| *name).find(|name| name.starts_with("rule ")).unwrap_or_default();
        let wanted = [
            ("10.64.0.0/16", Kind::Route),
            ("10.65.0.0/16", Kind::Route),
            ("10.69.0.0/16", Kind::Route),
            ("fd64::/32", Kind::Route),
            (&neighbour, Kind::Neighbour),
            ("next hop object 7", Kind::Nexthop),
            // Its text has a prefix, but it is not a route.
            (rule, Kind::Rule),
            (&settings, Kind::Settings),
        ];
        assert_eq!(named, wanted.map(|(name, kind)| (kind, name)), "{:#?}", found.differences);
        assert!(
            found.differences.iter().all(|found| found.part == Part::Mirror) && rule.contains("10.99.0.0/16")
        );
        let (differ, _) = sampled::<u32>(&mut run, &[0x0a40_0001, 0x0a41_0001, 0x0a44_0001, 0x0a45_0001]);
        assert_eq!(differ.len(), 4, "{differ:#?}");
    });
}

/// Every prefix has its turn, and addresses beside prefixes come, too.
#[test]
fn samples_reach_each_prefix() {
    let Some(bed) = Bed::new("turn") else { return };
    in_thread(move || {
        enter_namespace(bed.0.name()).unwrap();
        let mut run = Run::new(bed, 98);
        let routes: String =
            (0..300).map(|n| format!("route add 20.{}.{}.0/24 via 10.1.0.2\n", n >> 8, n & 0xff)).collect();
        run.bed.batch("-4", &routes);
        run.mirror.dump_kernel_state(&mut run.requests).unwrap();
        run.mirror.resync.lose_routes();
        run.settle();
        let mut sampler = Sampler::default();
        let mut missing: std::collections::BTreeSet<IpAddr> =
            (0..300_u32).map(|n| IpAddr::from(Ipv4Addr::from(0x1400_0000 | n << 8))).collect();
        let (mut beside, before_last) = (0, Ipv4Addr::from(0x1400_0000 | 299 << 8 | 0xff));
        for _ in 0..40_000 {
            let Some(sample) = sampler.next(&run.published.publisher) else { panic!("no sample") };
            missing.remove(&sample.address);
            let just_outside = [Ipv4Addr::new(19, 255, 255, 255), Ipv4Addr::from(u32::from(before_last) + 1)];
            beside += usize::from(just_outside.iter().any(|address| sample.address == *address));
        }
        assert!(missing.is_empty() && sampler.rounds > 0, "{missing:?} in {} rounds", sampler.rounds);
        assert!(beside > 0);
    });
}
