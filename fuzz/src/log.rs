//! The write-ahead log: pages, groups, the staging file, recovery.

use crate::script;
use base::codec::Reader;
use base::{Result, Uid};
use io::sim::SimEnv;
use io::{Access, PAGE};
use std::path::Path;
use wal::page::{self, BatchHeader, Form, FragmentKind, Fragments, Owner, PageHeader, ROOM_LEN_MIN, Stream};
use wal::{Lane, LogGroup, RecoveryMode, TenantId, dump_group, recover_lane};

/// The store that all logs belong to; that of the golden group.
pub const STORE: Uid =
    Uid([0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe]);
/// The identity that all groups have; that of the golden group.
const GROUP: Uid =
    Uid([0x44, 0x44, 0x33, 0x33, 0x22, 0x22, 0x11, 0x11, 0x88, 0x88, 0x77, 0x77, 0x66, 0x66, 0x55, 0x55]);
const OWNER: Owner = Owner { store: STORE, group: Some(GROUP) };
/// The number of the golden group.
const GOLDEN_LTN: u64 = 3;
const GOLDEN: &[u8] = include_bytes!("../../crates/wal/tests/golden/group-v2.log");
const GOLDEN_V3: &[u8] = include_bytes!("../../crates/wal/tests/golden/group-v3.log");
/// In the lane that keeps records.
const GOLDEN_V4: &[u8] = include_bytes!("../../crates/wal/tests/golden/group-v4.log");
const GOLDEN_V1: &[u8] = include_bytes!("../../crates/wal/tests/golden/group-v1.log");

/// A page, closed or open.
pub fn log_page(data: &[u8]) {
    let mut page = [0; PAGE];
    let len = data.len().min(PAGE);
    page[..len].copy_from_slice(&data[..len]);
    for bytes in [&page[..], data] {
        let _ = page::read_open(bytes, STORE);
        for owner in [OWNER, Owner { group: None, ..OWNER }] {
            let _ = page::read_closed(bytes, owner, GOLDEN_LTN);
            let mut fragments = Fragments::new(bytes, owner, 1);
            assert!(fragments.by_ref().count() <= PAGE);
            assert!(fragments.end() <= bytes.len().max(owner.header_len()));
        }
    }
}

/// The pages of the golden group.
pub fn log_page_seeds() -> Vec<Vec<u8>> {
    let pages = |group: &'static [u8]| group.chunks(PAGE).take(4).map(<[u8]>::to_vec);
    [GOLDEN, GOLDEN_V3, GOLDEN_V4, GOLDEN_V1].into_iter().flat_map(pages).collect()
}

/// Recovers and lists the log of these groups of a lane; `staging` may be empty.
fn recover_groups(
    lane: Lane,
    groups: &[(u64, Vec<u8>, Option<u64>)],
    uid: Option<Uid>,
    staging: &[u8],
) -> Result<()> {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let dir = Path::new("/");
    sim.write_file(dir.join(lane.staging_name()), staging)?;
    let mut files = Vec::new();
    let mut stored = staging.len();
    for (ltn, bytes, sealed_end) in groups {
        let path = dir.join(format!("{ltn}.log"));
        sim.write_file(&path, bytes)?;
        stored += bytes.len();
        let file = env.fs.open_in_place(&path, Access::Direct)?;
        let mut text = String::new();
        dump_group(&*file, &mut text)?;
        files.push(LogGroup { ltn: *ltn, uid, file, sealed_end: *sealed_end, begin: None });
    }
    let mut first = None;
    for mode in [RecoveryMode::ReadOnly, RecoveryMode::ReadWrite, RecoveryMode::ReadWrite] {
        let mut replayed = 0;
        let report = recover_lane(&env, dir, (STORE, lane), &files, mode, &mut |batch| {
            replayed += batch.bytes.len();
            assert!(replayed <= stored, "more was replayed than is stored");
            Ok(())
        })?;
        assert!(report.batches as usize <= stored / page::NEXT_FRAGMENT_HEADER_LEN);
        // Recovery can be repeated: what it wrote changes nothing about what it finds.
        let found = (report.next_lpn, report.sealed, report.seqs, replayed);
        assert_eq!(
            *first.get_or_insert(found.clone()),
            found,
            "recovery finds something else the second time"
        );
    }
    Ok(())
}

/// The bytes of a group file, and behind them (from the last quarter on) those of the staging file.
pub fn log_group(data: &[u8]) {
    let pages = data.len() / PAGE;
    let (group, staging) = data.split_at(pages.div_ceil(4) * 3 * PAGE % (data.len() + 1));
    let mut group = group.to_vec();
    group.resize(group.len().div_ceil(PAGE).max(2) * PAGE, 0);
    let groups = [(GOLDEN_LTN, group, None)];
    let _ = recover_groups(Lane::FIRST, &groups, OWNER.group, staging);
    let _ = recover_groups(Lane::FIRST, &groups, None, staging);
    let _ = recover_groups(Lane::LOG, &groups, OWNER.group, staging);
}

/// The golden group.
pub fn log_group_seeds() -> Vec<Vec<u8>> {
    let seeds = |group: &[u8]| [group.to_vec(), group[..4 * PAGE].to_vec(), [group, group].concat()];
    [GOLDEN, GOLDEN_V3, GOLDEN_V4, GOLDEN_V1].into_iter().flat_map(seeds).collect()
}

/// What a script makes of one page: how it departs from the page that should come next.
struct PagePlan {
    staged: bool,
    header: PageHeader,
}

/// A log in the making: pages with valid checksums whose contents the script decides.
struct Forge<'a> {
    r: Reader<'a>,
    lane: Lane,
    groups: Vec<(u64, Vec<u8>, Option<u64>)>,
    staging: Vec<u8>,
    next: PageHeader,
    seq: u64,
}

/// Pages of each forged group.
const GROUP_PAGES: usize = 8;
/// Pages that one script makes.
const PAGES_MAX: usize = 24;

impl Forge<'_> {
    fn byte(&mut self) -> u8 {
        self.r.u8().unwrap_or(0)
    }

    /// `right` if the next byte is small, which it mostly is; else a number near or far.
    fn number(&mut self, right: u64) -> u64 {
        match self.byte() {
            0..=191 => right,
            n @ 192..=207 => right.wrapping_add(u64::from(n)).wrapping_sub(200),
            n @ 208..=231 => script::BOUNDARIES[usize::from(n - 208)],
            _ => self.r.u64().unwrap_or(u64::MAX),
        }
    }

    fn plan(&mut self) -> PagePlan {
        let staged = self.byte() > 200;
        let next = self.next;
        let lpn = self.number(next.lpn).min(page::LPN_LIMIT - 1);
        let first_lpn = self.number(next.first_lpn).min(lpn);
        let header = PageHeader {
            form: if staged { Form::Open } else { Form::Closed },
            ltn: self.number(next.ltn),
            lpn,
            first_lpn,
            prev_used: self.number(next.prev_used.into()) as u16,
            durable_end: self.number(next.durable_end).min(lpn),
            prev_ltn: self.number(next.prev_ltn),
            prev_end: self.number(next.prev_end).min(first_lpn),
            witness_edit: self.number(1),
            stream: match (self.byte(), self.lane) {
                (0..100, Lane::FIRST) => None,
                (_, Lane::FIRST) => Some(Stream::default()),
                (n @ 252.., lane) => Some(Stream::of(lane, 512 << (n % 4))),
                _ => next.stream,
            },
            ..next
        };
        PagePlan { staged, header }
    }

    /// Fills a page with fragments; returns how far.
    fn fragments(&mut self, bytes: &mut [u8; PAGE], lpn: u64) -> usize {
        let mut pos = page::HEADER_LEN;
        for _ in 0..self.byte() % 6 {
            let kind = match self.byte() % 8 {
                5 => FragmentKind::First,
                6 => FragmentKind::Middle,
                7 => FragmentKind::Last,
                _ => FragmentKind::Full,
            };
            let want = match self.byte() {
                255 => PAGE,
                n => 1 + usize::from(n),
            };
            if pos + ROOM_LEN_MIN > PAGE {
                break;
            }
            let payload_len = want.min(PAGE - pos - kind.header_len());
            let (first_seq, seq_span) = (self.number(self.seq), self.number(0) as u32);
            let len = self.number(payload_len as u64) as u32;
            self.seq = first_seq.wrapping_add(u64::from(seq_span)).wrapping_add(1);
            let end = pos + kind.header_len() + payload_len;
            bytes[pos + kind.header_len()..end].fill(self.byte());
            let tenant = TenantId(self.number(0) as u8);
            let batch = BatchHeader { tenant, first_seq, seq_span, len };
            page::encode_fragment(&mut bytes[pos..end], kind, batch, OWNER, lpn, pos);
            pos = end;
        }
        pos
    }

    fn page(&mut self) {
        let PagePlan { staged, header } = self.plan();
        let mut bytes = [0; PAGE];
        header.encode_open(&mut bytes);
        let used = self.fragments(&mut bytes, header.lpn);
        let header = PageHeader { used: used as u16, ..header };
        let place = header.offset().unwrap_or(u64::MAX);
        if staged {
            self.staging.extend_from_slice(&bytes);
        } else {
            let used = self.number(used as u64).clamp(page::HEADER_LEN as u64, PAGE as u64) as u16;
            let bytes = &mut bytes[..PageHeader { used, ..header }.page_len()];
            page::close(bytes, used, header.durable_end, OWNER, header.lpn);
            let group = self.groups.last_mut().map(|(_, bytes, _)| bytes);
            let rest = group.and_then(|group| group.get_mut(usize::try_from(place).ok()?..));
            if let Some(slot) = rest.and_then(|rest| rest.get_mut(..bytes.len())) {
                slot.copy_from_slice(bytes);
            }
        }
        self.next.lpn = header.end_lpn();
        self.next.prev_used = used as u16;
        if place.saturating_add(2 * PAGE as u64) > (GROUP_PAGES * PAGE) as u64 {
            self.next_group();
        }
    }

    fn next_group(&mut self) {
        let ltn = self.next.ltn + 1 + u64::from(self.byte() > 250);
        let sealed_end = if self.byte() > 230 { Some(self.number(self.next.lpn)) } else { None };
        if let Some((_, _, sealed)) = self.groups.last_mut() {
            *sealed = sealed_end;
        }
        let lpn = self.next.lpn;
        self.next = PageHeader { prev_ltn: self.next.ltn, prev_end: lpn, first_lpn: lpn, ltn, ..self.next };
        self.groups.push((ltn, vec![0; GROUP_PAGES * PAGE], None));
    }
}

/// A script that forges pages, fragments, groups and staging under valid checksums.
pub fn log_sealed(data: &[u8]) {
    let mut r = Reader::new(data);
    // In which lane, and in what blocks.
    let lane = if r.u8().is_ok_and(|n| n % 4 == 3) { Lane::LOG } else { Lane::FIRST };
    let stream = (lane == Lane::LOG).then(|| Stream::of(lane, 512 << (r.u8().unwrap_or(0) % 4)));
    let next = PageHeader {
        form: Form::Closed,
        used: 0,
        prev_used: 0,
        owner: OWNER,
        ltn: 1,
        lpn: 1,
        first_lpn: 1,
        durable_end: 0,
        prev_ltn: 0,
        prev_end: 0,
        witness_edit: 0,
        stream,
    };
    let groups = vec![(1, vec![0; GROUP_PAGES * PAGE], None)];
    let mut forge = Forge { r, lane, groups, staging: Vec::new(), next, seq: 1 };
    for _ in 0..PAGES_MAX {
        if forge.r.is_empty() {
            break;
        }
        forge.page();
        if forge.byte() > 240 {
            forge.next_group();
        }
    }
    let _ = recover_groups(lane, &forge.groups, OWNER.group, &forge.staging);
}

/// Scripts that forge sound logs, and random ones.
pub fn log_sealed_seeds() -> Vec<Vec<u8>> {
    let mut rng = io::Rng::new(6);
    let mut all = vec![vec![0; 600], [vec![0; 100], vec![3; 400]].concat(), vec![3; 600]];
    for _ in 0..12 {
        // Mostly small bytes, which mean "as it should be".
        let odd = 2 + rng.below(40);
        all.push(
            (0..400).map(|_| (rng.next_u64() as u8) & if rng.one_in(odd) { 0xff } else { 0x0f }).collect(),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_group_and_sound_forgeries_are_recovered() {
        for (lane, group, owner) in [
            (Lane::FIRST, GOLDEN, OWNER),
            (Lane::FIRST, GOLDEN_V3, OWNER),
            (Lane::LOG, GOLDEN_V4, OWNER),
            (Lane::FIRST, GOLDEN_V1, Owner { group: None, ..OWNER }),
        ] {
            recover_groups(lane, &[(GOLDEN_LTN, group.to_vec(), None)], owner.group, &[]).unwrap();
            let first = page::read_closed(&group[..PAGE], owner, GOLDEN_LTN);
            assert!(matches!(first, page::Verdict::Valid(_)));
        }
    }
}
