//! `trieline lab report`: every figure on one page, the published points and ours, from saved documents or measured now.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::Args;
use trieline_lab::{Error, page::Page};
use trieline_terminal::Output;

use super::{
    all::{self, AllArgs},
    shared::RESULTS,
};

/// Options of `lab report`.
#[derive(Args, Debug)]
#[command(after_help = "It reads DIR/NAME.json, as `lab run NAME --save` writes them. \
                  If nothing is saved, it runs all experiments and saves them, which needs root.")]
pub struct ReportArgs {
    /// If nothing is saved, run quick experiments
    ///
    /// In about 15 minutes; full runs take hours.
    #[arg(long)]
    quick: bool,
    /// Measure though other work runs on the machine
    #[arg(long)]
    busy: bool,
    /// Write the page to FILE [default: report.html]
    ///
    /// With --markdown: report.md, and the pictures beside it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Read the documents in DIR [default: results]
    #[arg(long, value_name = "DIR", conflicts_with = "quick")]
    from: Option<PathBuf>,
    /// Write Markdown, with its pictures as files
    #[arg(long)]
    markdown: bool,
    /// Fill the tables of these Markdown pages
    ///
    /// Behind each mark `<!-- lab: NAME -->` the command writes the tables of DIR/NAME.json, up to `<!-- /lab -->`.
    /// `lab report --markdown --from docs/figures --fill README.md docs/*.md` fills those of the repository.
    #[arg(long, value_name = "FILE", num_args = 1.., requires_all = ["markdown", "from"], conflicts_with = "output")]
    fill: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: &ReportArgs, output: &Output) -> anyhow::Result<ExitCode> {
    if let (false, Some(directory)) = (args.fill.is_empty(), &args.from) {
        return fill(&args.fill, directory, output);
    }
    let page = match &args.from {
        Some(directory) => saved(directory)?,
        None => {
            let page = Page::read(Path::new(RESULTS))?;
            if page.is_empty() { measured(args)? } else { page }
        }
    };
    let name = if args.markdown { "report.md" } else { "report.html" };
    let path = args.output.clone().unwrap_or_else(|| name.into());
    let text = if args.markdown { page.markdown()? } else { page.html()? };
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut written = vec![path.clone()];
    for picture in page.pictures().filter(|_| args.markdown) {
        let saved = picture.save(folder);
        written.push(saved.with_context(|| format!("cannot write {}.svg beside the page", picture.name))?);
    }
    let states = page.states();
    if output.json {
        output.document(&serde_json::json!({ "written": written, "figures": states }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("wrote {}", path.display());
    if written.len() > 1 {
        text += &format!(" and {} pictures", written.len() - 1);
    }
    let missing: Vec<&str> =
        states.iter().filter(|state| !state.measured).map(|state| state.figure).collect();
    text += &if missing.is_empty() {
        format!(": all {} figures\n", states.len())
    } else {
        format!(
            ": {} of {} figures; not measured: {}\n",
            states.len() - missing.len(),
            states.len(),
            missing.join(" ")
        )
    };
    output.text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Fills pages from the documents of a directory, and puts the pictures of these beside them.
fn fill(pages: &[PathBuf], directory: &Path, output: &Output) -> anyhow::Result<ExitCode> {
    let page = Page::read(directory)?;
    let mut written = Vec::new();
    for path in pages {
        let cannot = |what: &str| format!("cannot {what} {}", path.display());
        let text = fs::read_to_string(path).with_context(|| cannot("read"))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let pictures = directory.strip_prefix(folder).unwrap_or(directory).display().to_string();
        let filled = page.fill(path, &text, &pictures)?;
        if filled != text {
            fs::write(path, filled).with_context(|| cannot("write"))?;
            written.push(path);
        }
    }
    for picture in page.pictures() {
        picture.save(directory).with_context(|| format!("cannot write {}.svg", picture.name))?;
    }
    let old = page.old(Path::new("."));
    if output.json {
        output.document(&serde_json::json!({ "written": written, "old": old }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let names: Vec<String> = written.iter().map(|path| format!("wrote {}\n", path.display())).collect();
    let old: Vec<String> = old.iter().map(|old| format!("old: {}\n", old.text())).collect();
    let all = if names.is_empty() { "no page changed\n".into() } else { names.concat() };
    output.text(&(all + &old.concat()))?;
    Ok(ExitCode::SUCCESS)
}

/// The documents of a directory; an error if it has none.
fn saved(directory: &Path) -> anyhow::Result<Page> {
    let page = Page::read(directory)?;
    if page.is_empty() {
        bail!(
            "cannot read {}: no document there; expected NAME.json as `lab run NAME --save` writes it",
            directory.display()
        );
    }
    Ok(page)
}

/// All experiments as by `lab run all`. One that fails loses its own figures only.
fn measured(args: &ReportArgs) -> anyhow::Result<Page> {
    if !rustix::process::geteuid().is_root() {
        return Err(anyhow::Error::new(Error::NotRoot)
            .context(format!("cannot measure, and {RESULTS}/ has no documents to read")));
    }
    let rows = all::measure_all(&AllArgs::for_report(args.quick), args.busy, &mut |_| Ok(()))?;
    let interrupted: Vec<&str> =
        rows.iter().filter(|row| row.was_interrupted()).map(|row| row.experiment).collect();
    if !interrupted.is_empty() {
        bail!(
            "interrupted before the end of {}; {RESULTS}/ has the documents of the others: `lab run all --resume` goes on",
            interrupted.join(", ")
        );
    }
    let mut page = Page::read(Path::new(RESULTS))?;
    for row in &rows {
        if let Some(reason) = &row.reason {
            page.fail(row.experiment, reason);
        }
    }
    if page.is_empty() {
        bail!("cannot write a page: every experiment failed");
    }
    Ok(page)
}
