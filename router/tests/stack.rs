//! The stack of every way through the XDP program of the array. Linux 6.1 counts each frame in whole 32 bytes, and allows 512 in all. Later
//! kernels allow more. So no other test fails here before one in a virtual machine does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use object::read::{Object, ObjectSection, ObjectSymbol};
use object::{RelocationTarget, SectionIndex, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const LIMIT: u32 = 512;
const ROUNDED_TO: u32 = 32;
const INSTRUCTION: usize = 8;
/// Register 10, the frame.
const FRAME: u8 = 10;
// Opcodes: a register moved, a number added, a call, a number of 64 bits in two instructions.
const MOVE: u8 = 0xbf;
const ADD: u8 = 0x07;
const CALL: u8 = 0x85;
const LOAD_64: u8 = 0x18;

#[derive(Debug, Default)]
struct Function {
    /// Bytes of its frame.
    frame: u32,
    calls: BTreeSet<String>,
}

fn functions() -> BTreeMap<String, Function> {
    let bytes = fs::read(env!("TRIELINE_NODE_OBJECT")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let at = |section: SectionIndex, address: u64| {
        let is_it = |symbol: &object::Symbol<'_, '_>| {
            let range = symbol.address()..symbol.address() + symbol.size();
            symbol.kind() == SymbolKind::Text
                && symbol.section_index() == Some(section)
                && range.contains(&address)
        };
        file.symbols().find(is_it).map(|symbol| symbol.name().unwrap().to_owned())
    };
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    for section in file.sections().filter(|section| section.kind() == object::SectionKind::Text) {
        let code = section.data().unwrap();
        let relocations: BTreeMap<u64, _> = section.relocations().collect();
        let mut copies = None;
        let mut skip = false;
        for (number, instruction) in code.chunks_exact(INSTRUCTION).enumerate() {
            if std::mem::take(&mut skip) {
                continue;
            }
            let address = (number * INSTRUCTION) as u64;
            let [opcode, registers, ..] = *instruction else { unreachable!() };
            let (to, from) = (registers & 15, registers >> 4);
            let offset = i16::from_le_bytes([instruction[2], instruction[3]]);
            let number = i32::from_le_bytes(instruction[4..].try_into().unwrap());
            let function = functions.entry(at(section.index(), address).unwrap()).or_default();
            let below = match opcode & 7 {
                1 if from == FRAME => i32::from(offset),
                2 | 3 if to == FRAME => i32::from(offset),
                _ if opcode == ADD && copies == Some(to) => number,
                _ => 0,
            };
            function.frame = function.frame.max(below.min(0).unsigned_abs());
            copies = (opcode == MOVE && from == FRAME).then_some(to);
            skip = opcode == LOAD_64;
            if opcode == CALL && from == 1 {
                let symbol = relocations.get(&address).map(|relocation| relocation.target());
                let called = match symbol {
                    Some(RelocationTarget::Symbol(symbol)) => {
                        let symbol = file.symbol_by_index(symbol).unwrap();
                        let inside = u64::try_from(number + 1).unwrap_or(0) * INSTRUCTION as u64;
                        match symbol.kind() {
                            SymbolKind::Section => at(symbol.section_index().unwrap(), inside),
                            _ => Some(symbol.name().unwrap().to_owned()),
                        }
                    }
                    _ => at(section.index(), address + (number as u64).wrapping_add(1) * INSTRUCTION as u64),
                };
                function.calls.insert(called.unwrap());
            }
        }
    }
    functions
}

/// The bytes of the deepest way from here, and its functions.
fn deepest(functions: &BTreeMap<String, Function>, name: &str) -> (u32, Vec<String>) {
    let function = &functions[name];
    let below = function.calls.iter().map(|called| deepest(functions, called));
    let (bytes, mut way) = below.max().unwrap_or_default();
    way.insert(0, format!("{name} ({})", function.frame));
    (bytes + function.frame.max(1).next_multiple_of(ROUNDED_TO), way)
}

#[test]
fn every_way_fits_linux_6_1() {
    let functions = functions();
    let (bytes, way) = deepest(&functions, "trieline");
    assert!(way.len() > 3 && bytes > LIMIT / 2, "{bytes} bytes, which cannot be: {way:?}");
    assert!(bytes <= LIMIT, "{bytes} bytes of {LIMIT}: {}", way.join(" → "));
    println!("{bytes} bytes of {LIMIT}: {}", way.join(" → "));
}
