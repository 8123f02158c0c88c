//! Which address stands for which name in one sandbox.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

/// Addresses that are handed out in place of names' own. A name keeps its address while there is room.
#[derive(Debug)]
pub(crate) struct StandIns {
    first: u32,
    names_max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    by_name: HashMap<String, usize>,
    /// Counts uses, to tell which was the last.
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    name: String,
    used: u64,
    connections: usize,
}

/// A name that a connection uses: its address stands for nothing else meanwhile.
#[derive(Debug)]
pub(crate) struct InUse {
    stand_ins: Arc<StandIns>,
    slot: usize,
    pub(crate) name: String,
}

impl StandIns {
    /// Takes `names_max` addresses of the network at `base`, which has that many and two more.
    pub(crate) fn new(base: Ipv4Addr, names_max: usize) -> Arc<StandIns> {
        // The network's own address stands for nothing.
        Arc::new(StandIns { first: u32::from(base) + 1, names_max, table: Mutex::default() })
    }

    /// The address for a name; `None` when all are used by connections.
    pub(crate) fn address(&self, name: &str) -> Option<Ipv4Addr> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match table.by_name.get(name) {
            Some(slot) => *slot,
            None => table.room(self.names_max, name)?,
        };
        table.touch(slot);
        Some(Ipv4Addr::from(self.first + slot as u32))
    }

    /// The name that an address stands for, if it was handed out.
    pub(crate) fn take(self: &Arc<Self>, address: Ipv4Addr) -> Option<InUse> {
        let slot = u32::from(address).checked_sub(self.first)? as usize;
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.touch(slot);
        let found = table.slots.get_mut(slot)?;
        found.connections += 1;
        Some(InUse { stand_ins: self.clone(), slot, name: found.name.clone() })
    }
}

impl Table {
    fn touch(&mut self, slot: usize) {
        self.clock += 1;
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.used = self.clock;
        }
    }

    fn room(&mut self, names_max: usize, name: &str) -> Option<usize> {
        let fresh = Slot { name: name.to_owned(), used: 0, connections: 0 };
        let slot = if self.slots.len() < names_max {
            self.slots.push(fresh);
            self.slots.len() - 1
        } else {
            let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.connections == 0);
            let (oldest, _) = idle.min_by_key(|(_, slot)| slot.used)?;
            self.by_name.remove(&self.slots[oldest].name);
            self.slots[oldest] = fresh;
            oldest
        };
        self.by_name.insert(name.to_owned(), slot);
        Some(slot)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut table = self.stand_ins.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = table.slots.get_mut(self.slot) {
            slot.connections -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

    #[test]
    fn a_name_keeps_its_address() {
        let stand_ins = StandIns::new(BASE, 8);
        let first = stand_ins.address("a.test").unwrap();
        assert_ne!(stand_ins.address("b.test").unwrap(), first);
        assert_eq!(stand_ins.address("a.test").unwrap(), first);
        assert_eq!(stand_ins.take(first).unwrap().name, "a.test");
    }

    #[test]
    fn an_address_that_was_not_handed_out_stands_for_nothing() {
        let stand_ins = StandIns::new(BASE, 8);
        stand_ins.address("a.test").unwrap();
        for address in [BASE, Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST] {
            assert!(stand_ins.take(address).is_none(), "{address}");
        }
    }

    #[test]
    fn the_name_that_was_used_least_lately_makes_room_but_never_one_in_use() {
        let stand_ins = StandIns::new(BASE, 2);
        let (a, b) = (stand_ins.address("a.test").unwrap(), stand_ins.address("b.test").unwrap());
        let used = stand_ins.take(a).unwrap();
        stand_ins.take(b).unwrap();
        assert_eq!(stand_ins.address("c.test"), Some(b), "a.test was used before, and is in use");
        let other = stand_ins.take(b).unwrap();
        assert_eq!(stand_ins.address("d.test"), None);
        drop((used, other));
        assert_eq!(stand_ins.address("d.test"), Some(a));
        assert_eq!(stand_ins.take(a).unwrap().name, "d.test");
    }
}
