//! Dumps that are read part by part.

use super::*;

/// The kernel's routes, links and neighbours change between the parts of each dump, and the changes are followed and published there, as
/// the daemon does. Afterwards every answer is the kernel's.
#[test]
fn changes_between_the_parts_of_a_dump() {
    let Some(bed) = Bed::new("parts") else { return };
    in_thread(move || {
        enter_namespace(bed.0.name()).unwrap();
        let mut run = Run::new(bed, 77);
        let (mut given4, mut given6) = (Vec::new(), Vec::new());
        let many = |route: &dyn Fn(usize) -> String| (0..2000).map(route).collect::<String>();
        run.bed.batch("-4", &many(&|n| format!("route add 20.{}.{}.0/24 via 10.1.0.2\n", n >> 8, n & 0xff)));
        run.bed.batch("-6", &many(&|n| format!("route add 2001:db8:{n:x}::/48 via fd00:1::2\n")));
        run.mirror.dump_kernel_state(&mut run.requests).unwrap();
        run.mirror.resync.lose_routes();
        run.compare::<u32>(0);
        let mut dumps = Netlink::route().unwrap();
        let (mut parts, mut interrupted_dumps) = (0, 0);
        for round in 1..=12 {
            // Links that went down took them along.
            run.bed.batch("-4", "link set n0 up\nlink set n1 up\nlink set n2 up\n");
            run.bed
                .batch("-4", &many(&|n| format!("route add 20.{}.{}.0/24 via 10.1.0.2\n", n >> 8, n & 0xff)));
            run.bed.batch("-6", &many(&|n| format!("route add 2001:db8:{n:x}::/48 via fd00:1::2\n")));
            let mut dump = run.mirror.begin_ipv4(&mut dumps).unwrap();
            while dump.go_on(&mut run.mirror.nhgs, &mut dumps).unwrap() {
                parts += 1;
                run.change::<u32>(&mut given4, 12);
                read(&mut run.mirror, &mut run.events);
                run.published.publish(&mut run.mirror);
            }
            read(&mut run.mirror, &mut run.events);
            run.mirror.adopt_ipv4(dump);
            let mut dump = run.mirror.begin_ipv6(&mut dumps).unwrap();
            while dump.go_on(&mut run.mirror.nhgs, &mut dumps).unwrap() {
                parts += 1;
                run.change::<u128>(&mut given6, 12);
                read(&mut run.mirror, &mut run.events);
                run.published.publish(&mut run.mirror);
            }
            read(&mut run.mirror, &mut run.events);
            run.mirror.adopt_ipv6(dump);
            interrupted_dumps += u32::from(run.mirror.resync.is_interrupted());
            run.compare::<u32>(round);
            run.compare::<u128>(round);
        }
        println!("{parts} parts, {interrupted_dumps} disturbed");
        assert!(
            parts > 36 && interrupted_dumps > 6,
            "{parts} parts, {interrupted_dumps} disturbed: this proves too little"
        );
    });
}
