//! Reads a crate's sources: its modules, the names that each module defines or imports, and the paths that its code writes.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, Meta, UseTree};

/// A module, with a file of its own or inside its parent's file.
#[derive(Default)]
struct Module {
    /// The path from the crate root, which is empty for the root.
    path: Vec<String>,
    file: PathBuf,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// Imported names and the path of each, as it is written.
    imports: BTreeMap<String, Vec<String>>,
    /// The paths of imports with `*`.
    globs: Vec<Vec<String>>,
    items: BTreeSet<String>,
    mentions: Vec<Mention>,
}

/// A path in the code of a module.
struct Mention {
    path: Vec<String>,
    line: usize,
    /// Whether it stands in a `pub use`.
    exported: bool,
}

/// The modules of one target. The first is the crate root.
pub(super) struct Crate {
    modules: Vec<Module>,
}

/// One use of a module by another.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    pub(super) from: Vec<String>,
    pub(super) to: Vec<String>,
    /// The item that is used, or `*`, or nothing if it is the module itself.
    pub(super) item: Option<String>,
    pub(super) place: String,
    /// Whether `from` re-exports it, with `pub use`.
    pub(super) exported: bool,
}

impl Crate {
    /// Reads the target whose root is `root`. `text` returns the content of a file, or `None` if it does not exist.
    pub(super) fn read(root: &Path, text: &dyn Fn(&Path) -> Option<String>) -> Self {
        let mut reader = Reader { modules: Vec::new(), at: 0, text };
        reader.modules.push(Module { file: root.to_owned(), ..Module::default() });
        let folder = root.parent().expect("a source is in a folder").to_owned();
        reader.file(0, root, &folder);
        Self { modules: reader.modules }
    }

    /// The modules on the top: those that the crate root declares, each in a file of its own.
    pub(super) fn top(&self) -> impl Iterator<Item = String> {
        let own = |at: &usize| self.owner(*at) != 0;
        self.modules[0].children.iter().filter(move |(_, at)| own(at)).map(|(name, _)| name.clone())
    }

    /// Every use of one module by another of this crate. Modules inside a file count as that file's module.
    pub(super) fn edges(&self) -> Vec<Edge> {
        let mut found: Vec<Edge> = Vec::new();
        let mut seen = BTreeSet::new();
        for (at, module) in self.modules.iter().enumerate() {
            for mention in &module.mentions {
                let Some((target, item)) = self.resolve(at, &mention.path, 0) else { continue };
                // A variable may have the name of a module; an imported item is a use of it.
                if item.is_none() && mention.path.len() == 1 {
                    continue;
                }
                let (from, to) = (self.owner(at), self.owner(target));
                let edge = Edge {
                    from: self.modules[from].path.clone(),
                    to: self.modules[to].path.clone(),
                    item,
                    place: format!("{}:{}", module.file.display(), mention.line),
                    exported: mention.exported,
                };
                // The name of an ancestor alone uses nothing of it: `use super::super::image;`.
                if from == to || edge.item.is_none() && edge.from.starts_with(&edge.to) {
                    continue;
                }
                if seen.insert((edge.from.clone(), edge.to.clone(), edge.item.clone(), edge.exported)) {
                    found.push(edge);
                }
            }
        }
        found
    }

    /// The nearest module with a file of its own.
    fn owner(&self, mut at: usize) -> usize {
        while at != 0 && self.modules[at].file == self.modules[self.modules[at].parent].file {
            at = self.modules[at].parent;
        }
        at
    }

    /// The module that defines what `path` names for the code in module `from`, and the item's name. `None` if it is another crate's.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<(usize, Option<String>)> {
        // An import of a name of the same name: another crate's.
        if depth > 16 {
            return None;
        }
        let (first, mut rest) = path.split_first()?;
        let mut at = from;
        match first.as_str() {
            "crate" => at = 0,
            "self" => {}
            "super" => at = self.modules[from].parent,
            name if self.defines(from, name, depth) => rest = path,
            _ => return None,
        }
        while let Some((name, after)) = rest.split_first() {
            let module = &self.modules[at];
            if name == "super" {
                at = module.parent;
            } else if name == "self" {
            } else if let Some(child) = module.children.get(name) {
                at = *child;
            } else if module.items.contains(name) {
                return Some((at, Some(name.clone())));
            } else if let Some(import) = module.imports.get(name) {
                return self.resolve(at, &[import, after].concat(), depth + 1);
            } else if let Some(glob) = self.glob(at, name, depth) {
                return self.resolve(glob, rest, depth + 1);
            } else {
                return Some((at, Some(name.clone())));
            }
            rest = after;
        }
        Some((at, None))
    }

    fn defines(&self, at: usize, name: &str, depth: usize) -> bool {
        let module = &self.modules[at];
        module.children.contains_key(name)
            || module.items.contains(name)
            || module.imports.contains_key(name)
            || self.glob(at, name, depth).is_some()
    }

    /// The module that an import with `*` takes `name` from.
    fn glob(&self, at: usize, name: &str, depth: usize) -> Option<usize> {
        if depth > 16 {
            return None;
        }
        let targets = self.modules[at].globs.iter().filter_map(|glob| self.resolve(at, glob, depth + 1));
        targets
            .filter(|(target, item)| item.is_none() && *target != at)
            .map(|(target, _)| target)
            .find(|target| self.defines(*target, name, depth + 1))
    }
}

struct Reader<'text> {
    modules: Vec<Module>,
    at: usize,
    text: &'text dyn Fn(&Path) -> Option<String>,
}

impl Reader<'_> {
    /// Reads `file` as the content of module `at`. The files of its children are in `folder`.
    fn file(&mut self, at: usize, file: &Path, folder: &Path) {
        let Some(text) = (self.text)(file) else { panic!("{} does not exist", file.display()) };
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.modules[at].file = file.to_owned();
        self.items(at, &parsed.items, folder);
    }

    fn items(&mut self, at: usize, items: &[Item], folder: &Path) {
        let before = std::mem::replace(&mut self.at, at);
        for item in items.iter().filter(|item| counts(attributes(item))) {
            match item {
                Item::Mod(module) => self.child(at, module, folder),
                Item::Use(import) => self.import(import, true),
                _ => {
                    if let Some(name) = name(item) {
                        // An exported macro is a name of the crate root, too.
                        if exported_macro(item) && at != 0 {
                            let path: Vec<String> = std::iter::once("crate".to_owned())
                                .chain(self.modules[at].path.iter().cloned())
                                .chain([name.clone()])
                                .collect();
                            self.modules[0].imports.insert(name.clone(), path);
                        }
                        self.modules[at].items.insert(name);
                    }
                    self.visit_item(item);
                }
            }
        }
        self.at = before;
    }

    fn child(&mut self, at: usize, module: &syn::ItemMod, folder: &Path) {
        let name = module.ident.to_string();
        let mut path = self.modules[at].path.clone();
        path.push(name.clone());
        let child = self.modules.len();
        let own = self.modules[at].file.clone();
        self.modules.push(Module { path, file: own.clone(), parent: at, ..Module::default() });
        self.modules[at].children.insert(name.clone(), child);
        if let Some((_, items)) = &module.content {
            return self.items(child, items, &folder.join(name));
        }
        let beside = own.parent().expect("a source is in a folder");
        let named = module.attrs.iter().find_map(path_attribute).map(|path| beside.join(path));
        let candidates = [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")];
        let file = named
            .or_else(|| candidates.into_iter().find(|file| (self.text)(file).is_some()))
            .unwrap_or_else(|| panic!("{}: no file of the module {name}", own.display()));
        self.file(child, &file, &folder.join(name));
    }

    fn import(&mut self, import: &syn::ItemUse, of_module: bool) {
        let exported = !matches!(import.vis, syn::Visibility::Inherited);
        let mut leaves = Vec::new();
        flatten(&import.tree, &mut Vec::new(), &mut leaves);
        // `::name` is another crate's.
        for (path, name, line) in leaves.into_iter().filter(|_| import.leading_colon.is_none()) {
            let module = &mut self.modules[self.at];
            if of_module {
                match name.as_str() {
                    "_" => {}
                    "*" => module.globs.push(path[..path.len() - 1].to_vec()),
                    _ => _ = module.imports.insert(name, path.clone()),
                }
            }
            module.mentions.push(Mention { path, line, exported });
        }
    }

    /// Paths among the tokens of a macro or an attribute, which `syn` does not parse.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut colons, mut line, mut dot) = (0, 0, false);
        for token in tokens {
            let after_dot = std::mem::replace(&mut dot, is_dot(&token));
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                // A field or a method.
                TokenTree::Ident(_) if after_dot => {}
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.mention(&path, line);
                        path.clear();
                        line = name.span().start().line;
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.mention(&path, line);
                    path.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.mention(&path, line);
    }

    fn mention(&mut self, path: &[String], line: usize) {
        if !path.is_empty() {
            let mention = Mention { path: path.to_vec(), line, exported: false };
            self.modules[self.at].mentions.push(mention);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if counts(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        self.import(import, false);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if counts(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if counts(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if counts(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if counts(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if counts(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
            self.mention(&names, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        self.visit_path(&invocation.path);
        self.tokens(invocation.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.tokens(list.tokens.clone());
    }
}

fn is_dot(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '.')
}

/// Every leaf of an import: its path, the name it gets and its line.
fn flatten(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, String, usize)>) {
    let leaf = |before: &[String], last: &str| {
        before.iter().map(String::as_str).chain([last]).map(str::to_owned).collect::<Vec<_>>()
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            let own = before.last().cloned().unwrap_or_default();
            leaves.push((before.clone(), own, name.ident.span().start().line));
        }
        UseTree::Name(name) => {
            let text = name.ident.to_string();
            leaves.push((leaf(before, &text), text, name.ident.span().start().line));
        }
        UseTree::Rename(name) => {
            let line = name.ident.span().start().line;
            leaves.push((leaf(before, &name.ident.to_string()), name.rename.to_string(), line));
        }
        UseTree::Glob(glob) => {
            leaves.push((leaf(before, "*"), "*".to_owned(), glob.star_token.spans[0].start().line));
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, leaves)),
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn exported_macro(item: &Item) -> bool {
    attributes(item).iter().any(|attribute| attribute.path().is_ident("macro_export"))
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(literal) = &pair.value else { return None };
    let syn::Lit::Str(path) = &literal.lit else { return None };
    pair.path.is_ident("path").then(|| path.value())
}

/// Whether the compiler sees it outside of tests and models: `#[cfg(test)]` and `#[cfg(loom)]` do not count.
fn counts(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            syn::parse2(list.tokens.clone()).is_ok_and(|condition| holds(&condition) == Some(false))
        }
        Meta::Path(path) => path.is_ident("test"),
        _ => false,
    })
}

/// The value of a condition without `test` and `loom`. `None` if other settings decide.
fn holds(condition: &Meta) -> Option<bool> {
    let Meta::List(list) = condition else {
        let off = condition.path().is_ident("test") || condition.path().is_ident("loom");
        return off.then_some(false);
    };
    let parser = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
    let parts = syn::parse::Parser::parse2(parser, list.tokens.clone()).ok()?;
    let mut values = parts.iter().map(holds);
    if list.path.is_ident("not") {
        return values.next()?.map(|value| !value);
    }
    let decisive = list.path.is_ident("any");
    let values: Vec<Option<bool>> = values.collect();
    if values.contains(&Some(decisive)) {
        return Some(decisive);
    }
    values.iter().all(Option::is_some).then_some(!decisive)
}
