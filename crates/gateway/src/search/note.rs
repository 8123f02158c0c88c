//! The catalogue in few words, for the description of `run_code`.

use crate::catalogue::{Catalogue, Server};
use crate::stubs::{self, Dialect};

/// What the note may cost, unless the operator says otherwise.
pub const NOTE_TOKENS: usize = 400;
/// A token of signatures is about so many bytes, and rather more. Counting would need the tokenizer's tables in the memory of every server.
const TOKEN_BYTES: f32 = 3.4;
const MORE: &str = "more: search_tools";
/// No signature may take more than this part of the whole: one with fifty parameters would be the whole note.
const SHARE: usize = 8;
/// Signatures that did not fit, one after another, before it is thought full.
const MISSES: usize = 64;

/// Every server with the number of its tools, then signatures, one of each server in turn, as far as the budget goes. The
/// same catalogue has the same note.
pub fn catalogue_note(catalogue: &Catalogue, budget_tokens: usize) -> String {
    if catalogue.servers.is_empty() {
        return String::new();
    }
    let bytes = (budget_tokens as f32 * TOKEN_BYTES) as usize;
    let room = bytes.saturating_sub(MORE.len() + 1);
    let mut note = servers(catalogue, room);
    let chosen = signatures(catalogue, room.saturating_sub(note.len()));
    for line in chosen {
        note.push_str(&line);
        note.push('\n');
    }
    note.push_str(MORE);
    note
}

/// One line of all servers: with counts, else names only, else as many names as fit and the number of the others.
fn servers(catalogue: &Catalogue, room: usize) -> String {
    let line = |entries: &[String]| format!("servers: {}\n", entries.join(", "));
    let counted: Vec<String> = catalogue.servers.iter().map(|server| counted(server)).collect();
    let whole = line(&counted);
    if whole.len() <= room {
        return whole;
    }
    let names: Vec<String> = catalogue.servers.iter().map(|server| server.ident.clone()).collect();
    let whole = line(&names);
    if whole.len() <= room {
        return whole;
    }
    let mut text = "servers: ".to_owned();
    let mut left = catalogue.servers.iter();
    loop {
        let others = left.len();
        let tools: usize = left.clone().map(|server| server.tools.len()).sum();
        let rest = format!("and {others} more servers with {tools} tools\n");
        match left.next() {
            Some(server) if text.len() + server.ident.len() + 2 + rest.len() <= room => {
                text.push_str(&server.ident);
                text.push_str(", ");
            }
            _ => return text + &rest,
        }
    }
}

fn counted(server: &Server) -> String {
    match &server.trouble {
        Some(_) if server.tools.is_empty() => format!("{} (not reached)", server.ident),
        _ => format!("{} ({})", server.ident, server.tools.len()),
    }
}

/// Taken in turn, so that a server of a hundred tools does not starve one of three; given in the catalogue's order.
fn signatures(catalogue: &Catalogue, room: usize) -> Vec<String> {
    let most = catalogue.servers.iter().map(|server| server.tools.len()).max().unwrap_or(0);
    let mut chosen: Vec<((usize, usize), String)> = Vec::new();
    let mut left = room;
    let mut misses = 0;
    'rounds: for round in 0..most {
        for (place, server) in catalogue.servers.iter().enumerate() {
            let Some(tool) = server.tools.get(round) else { continue };
            let line = stubs::signature(tool, Dialect::Python);
            if line.len() + 1 > left || line.len() > room / SHARE {
                misses += 1;
                if misses > MISSES {
                    break 'rounds;
                }
                continue;
            }
            misses = 0;
            left -= line.len() + 1;
            chosen.push(((place, round), line));
        }
    }
    chosen.sort_by_key(|(order, _)| *order);
    chosen.into_iter().map(|(_, line)| line).filter(|line| !line.is_empty()).collect()
}
