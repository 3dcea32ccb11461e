//! The help of each command, option and value, as the definitions of the command lines have it: a line of it fits a terminal.

use super::tree::{text, tracked};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Fields, Lit, Meta};

/// The longest line of help, in characters.
const HELP_MAX: usize = 60;

/// Derives by which clap makes a command line.
const DERIVES: &[&str] = &["Parser", "Args", "Subcommand", "ValueEnum"];

/// Of an attribute of clap: such a field has no line of help.
const WITHOUT_HELP: &[&str] = &["skip", "flatten", "hide"];

/// The lines of help in a source.
#[derive(Default)]
struct Help(Vec<String>);

impl Help {
    fn of(source: &str) -> Vec<String> {
        let mut found = Self::default();
        found.visit_file(&syn::parse_file(source).expect("Rust"));
        found.0
    }

    /// The first paragraph of the documentation is the line of help.
    fn take(&mut self, attributes: &[Attribute]) {
        let lines = attributes.iter().filter_map(documentation).map(|line| line.trim().to_owned());
        let line = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        if !line.is_empty() && !attributes.iter().any(is_without_help) {
            self.0.push(line);
        }
    }

    fn fields(&mut self, fields: &Fields) {
        fields.iter().for_each(|field| self.take(&field.attrs));
    }
}

impl<'ast> Visit<'ast> for Help {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if item.attrs.iter().any(is_of_clap) {
            self.fields(&item.fields);
            // Of a whole program: its line in manual pages.
            if item.attrs.iter().any(|attribute| derives(attribute, &["Parser"])) {
                self.take(&item.attrs);
            }
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if item.attrs.iter().any(is_of_clap) {
            for variant in &item.variants {
                self.take(&variant.attrs);
                self.fields(&variant.fields);
            }
        }
        visit::visit_item_enum(self, item);
    }
}

fn documentation(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(literal) = &pair.value else { return None };
    let Lit::Str(line) = &literal.lit else { return None };
    pair.path.is_ident("doc").then(|| line.value())
}

/// Whether a list of words in an attribute has one of these.
fn lists(attribute: &Attribute, of: &[&str], words: &[&str]) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let named = of.iter().any(|name| list.path.is_ident(name));
    let found = |token: proc_macro2::TokenTree| match token {
        proc_macro2::TokenTree::Ident(word) => words.iter().any(|listed| word == listed),
        _ => false,
    };
    named && list.tokens.clone().into_iter().any(found)
}

fn derives(attribute: &Attribute, words: &[&str]) -> bool {
    lists(attribute, &["derive"], words)
}

fn is_of_clap(attribute: &Attribute) -> bool {
    derives(attribute, DERIVES)
}

fn is_without_help(attribute: &Attribute) -> bool {
    lists(attribute, &["arg", "command", "value", "clap"], WITHOUT_HELP)
}

#[test]
fn help_fits_a_line() {
    let sources: Vec<String> = tracked().into_iter().filter(|path| path.ends_with(".rs")).collect();
    let mut lines = 0;
    let mut found = Vec::new();
    for path in &sources {
        for line in Help::of(&text(path)) {
            lines += 1;
            let length = line.chars().count();
            if length > HELP_MAX {
                found.push(format!("{path}: {length} characters: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "expected at most {HELP_MAX}:\n{}", found.join("\n"));
    assert!(sources.is_empty() || lines > 150, "only {lines} lines of help were found");
}

#[test]
fn lines_of_help_are_found() {
    let source = r#"
/// The program
///
/// More about it.
#[derive(Debug, Parser)]
#[command(name = "program")]
struct Cli {
    /// Do so many
    /// things at once
    ///
    /// Not a line.
    #[arg(long)]
    many: u32,
    /// Not an option.
    #[arg(skip)]
    silent: bool,
    /// More options.
    #[command(flatten)]
    rest: Rest,
}
/// Not a program.
#[derive(Subcommand)]
enum Words {
    /// One command
    One {
        /// Its option
        #[arg(long)]
        option: bool,
    },
}
/// Not of clap.
#[derive(Debug)]
struct Other {
    /// A field.
    field: u32,
}
"#;
    let expected = ["Do so many things at once", "The program", "One command", "Its option"];
    assert_eq!(Help::of(source), expected);
}
