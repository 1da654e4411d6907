//! Teams and their collectives.

use std::ffi::{c_char, c_int, c_void};

use standpipe::{ElementType, Node, Reduction, Team, TeamEvent};

use crate::border::{call, note, or};
use crate::event::{CEvent, Context};
use crate::failure::Failure;
use crate::handle::{Handle, Kind, word};
use crate::node::{CNode, node_of};
use crate::pointer::{self, Params};

/// `sp_team` of the header.
pub struct CTeam(Team);

impl Kind for CTeam {
    const NAME: &'static str = "team";
    const WORD: u64 = word(b"sp team ");
}

/// `sp_combine` of the header.
type CCombine = unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void);

/// The team of a handle.
///
/// # Safety
/// As for [`Handle::get`].
unsafe fn team_of<'a>(team: *const Handle<CTeam>) -> Result<&'a Team, Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    Ok(&unsafe { Handle::get(team)? }.0)
}

/// Gives a team of a node to C.
///
/// # Safety
/// As for [`node_of`]; `team` may be written.
unsafe fn give(
    node: *mut Handle<CNode>,
    team: *mut *mut Handle<CTeam>,
    made: impl FnOnce(&Node) -> Result<Team, Failure>,
) -> c_int {
    call(|| {
        pointer::needs(team, "team")?;
        // SAFETY: the caller has promised what the header asks of these pointers.
        let made = made(unsafe { node_of(node)? })?;
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { pointer::put(team, Handle::give(CTeam(made)), "team")? };
        Ok(0)
    })
}

exported! {
    /// `sp_world` of the header.
    fn sp_world(node: *mut Handle<CNode>, team: *mut *mut Handle<CTeam>) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe {
            give(node, team, |node| {
                crate::node::may_call(node, "the team of all ranks")?;
                Ok(node.world())
            })
        }
    }
}

exported! {
    /// `sp_world_of` of the header.
    fn sp_world_of(
        node: *mut Handle<CNode>,
        name: *const c_char,
        team: *mut *mut Handle<CTeam>,
    ) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { give(node, team, |node| Ok(node.world_of(pointer::text(name, "the name")?)?)) }
    }
}

exported! {
    /// `sp_near_team` of the header.
    fn sp_near_team(node: *mut Handle<CNode>, team: *mut *mut Handle<CTeam>) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { give(node, team, |node| Ok(node.near_team()?)) }
    }
}

exported! {
    /// `sp_team_split` of the header.
    fn sp_team_split(
        team: *mut Handle<CTeam>,
        colour: i64,
        key: i64,
        part: *mut *mut Handle<CTeam>,
    ) -> c_int {
        call(|| {
            pointer::needs(part, "part")?;
            let color = match colour {
                ..0 => None,
                colour => {
                    let color = u32::try_from(colour);
                    Some(
                        color
                            .map_err(|_| Failure::value("the colour", colour, "negative, or 0 to 4294967295"))?,
                    )
                }
            };
            // SAFETY: the caller has promised what the header asks of these pointers.
            let made = unsafe { team_of(team)? }.split(color, key)?;
            let made = made.map_or(std::ptr::null_mut(), |team| Handle::give(CTeam(team)));
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(part, made, "part")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_team_within` of the header.
    fn sp_team_within(
        team: *const Handle<CTeam>,
        timeout: u64,
        limited: *mut *mut Handle<CTeam>,
    ) -> c_int {
        call(|| {
            pointer::needs(limited, "limited")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let other = unsafe { team_of(team)? }.within(pointer::duration(timeout));
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(limited, Handle::give(CTeam(other)), "limited")? };
            Ok(0)
        })
    }
}

/// A number of a team, or one for a bad handle.
fn number(bad: u32, body: impl FnOnce() -> Result<u32, Failure>) -> u32 {
    or(
        |failure| {
            note(failure);
            bad
        },
        body,
    )
}

exported! {
    /// `sp_team_rank` of the header.
    fn sp_team_rank(team: *const Handle<CTeam>) -> u32 {
        // SAFETY: the caller has promised what the header asks of these pointers.
        number(u32::MAX, || Ok(unsafe { team_of(team)? }.rank()))
    }
}

exported! {
    /// `sp_team_size` of the header.
    fn sp_team_size(team: *const Handle<CTeam>) -> u32 {
        // SAFETY: the caller has promised what the header asks of these pointers.
        number(0, || Ok(unsafe { team_of(team)? }.size()))
    }
}

exported! {
    /// `sp_team_job_rank` of the header.
    fn sp_team_job_rank(team: *const Handle<CTeam>, member: u32) -> u32 {
        // SAFETY: the caller has promised what the header asks of these pointers.
        number(u32::MAX, || Ok(unsafe { team_of(team)? }.job_rank(member).unwrap_or(u32::MAX)))
    }
}

exported! {
    /// `sp_team_free` of the header.
    fn sp_team_free(team: *mut Handle<CTeam>) {
        crate::border::free(team);
    }
}

exported! {
    /// `sp_team_barrier` of the header.
    fn sp_team_barrier(team: *mut Handle<CTeam>) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { team_of(team)? }.barrier()?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_team_broadcast` of the header.
    fn sp_team_broadcast(
        team: *mut Handle<CTeam>,
        bytes: *mut c_void,
        len: usize,
        root: u32,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (team, bytes) =
                unsafe { (team_of(team)?, pointer::slice_mut(bytes.cast::<u8>(), len, "the bytes")?) };
            team.broadcast(bytes, root)?;
            Ok(0)
        })
    }
}

/// So many bytes for each member.
fn for_all(team: &Team, each: usize) -> Result<usize, Failure> {
    let all = each.checked_mul(team.size() as usize);
    all.ok_or_else(|| Failure::argument(format!("{each} bytes for each member are more than memory has")))
}

/// Memory of a collective: `len` bytes to read, unless it is not used here.
///
/// # Safety
/// As for [`pointer::slice`].
unsafe fn from<'a>(start: *const c_void, len: usize, is_used: bool) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    unsafe { pointer::slice(start.cast::<u8>(), if is_used { len } else { 0 }, "`from`") }
}

/// As [`from`], to be written.
///
/// # Safety
/// As for [`pointer::slice_mut`].
unsafe fn into<'a>(start: *mut c_void, len: usize, is_used: bool) -> Result<&'a mut [u8], Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    unsafe { pointer::slice_mut(start.cast::<u8>(), if is_used { len } else { 0 }, "`into`") }
}

exported! {
    /// `sp_team_gather` of the header.
    fn sp_team_gather(
        team: *mut Handle<CTeam>,
        source: *const c_void,
        target: *mut c_void,
        each: usize,
        root: u32,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                let team = team_of(team)?;
                let all = for_all(team, each)?;
                team.gather(from(source, each, true)?, into(target, all, team.rank() == root)?, root)?;
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_team_scatter` of the header.
    fn sp_team_scatter(
        team: *mut Handle<CTeam>,
        source: *const c_void,
        target: *mut c_void,
        each: usize,
        root: u32,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                let team = team_of(team)?;
                let all = for_all(team, each)?;
                team.scatter(from(source, all, team.rank() == root)?, into(target, each, true)?, root)?;
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_team_all_gather` of the header.
    fn sp_team_all_gather(
        team: *mut Handle<CTeam>,
        source: *const c_void,
        target: *mut c_void,
        each: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                let team = team_of(team)?;
                team.all_gather(from(source, each, true)?, into(target, for_all(team, each)?, true)?)?;
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_team_all_to_all` of the header.
    fn sp_team_all_to_all(
        team: *mut Handle<CTeam>,
        source: *const c_void,
        target: *mut c_void,
        each: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                let team = team_of(team)?;
                let all = for_all(team, each)?;
                team.all_to_all(from(source, all, true)?, into(target, all, true)?)?;
            }
            Ok(0)
        })
    }
}

/// The lengths of an all-to-all of differing ones, and their sums.
///
/// # Safety
/// Both are arrays of as many lengths as the team has members.
unsafe fn lengths<'a>(
    team: &Team,
    sends: *const usize,
    receives: *const usize,
) -> Result<[(&'a [usize], usize); 2], Failure> {
    let of = |lengths: *const usize, what: &'static str| {
        // SAFETY: the caller has promised what the header asks of these pointers.
        let lengths = unsafe { pointer::slice(lengths, team.size() as usize, what)? };
        let sum = lengths.iter().try_fold(0_usize, |sum, len| sum.checked_add(*len));
        let sum = sum.ok_or_else(|| Failure::argument(format!("{what} are more bytes than memory has")))?;
        Ok::<_, Failure>((lengths, sum))
    };
    Ok([of(sends, "`sends`")?, of(receives, "`receives`")?])
}

exported! {
    /// `sp_team_all_to_all_v` of the header.
    fn sp_team_all_to_all_v(
        team: *mut Handle<CTeam>,
        source: *const c_void,
        sends: *const usize,
        target: *mut c_void,
        receives: *const usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                let team = team_of(team)?;
                let [(sends, sent), (receives, received)] = lengths(team, sends, receives)?;
                team.all_to_all_v(from(source, sent, true)?, sends, into(target, received, true)?, receives)?;
            }
            Ok(0)
        })
    }
}

/// The type and reduction that C numbers so.
fn reduction(of: c_int, by: c_int) -> Result<(ElementType, Reduction), Failure> {
    let element = u8::try_from(of).ok().and_then(ElementType::from_number);
    let element = element.ok_or_else(|| {
        Failure::value("the type", of.into(), "SP_U8 to SP_BF16, with or without SP_LOCATED")
    })?;
    let known = Reduction::ALL.iter().copied().find(|known| *known as c_int == by);
    let known =
        known.ok_or_else(|| Failure::value("the reduction", by.into(), "SP_SUM to SP_LOGICAL_XOR"))?;
    Ok((element, known))
}

/// Bytes of so many elements.
fn bytes_of(count: usize, each: usize) -> Result<usize, Failure> {
    let bytes = count.checked_mul(each);
    bytes.ok_or_else(|| {
        Failure::argument(format!("{count} elements of {each} bytes are more than memory has"))
    })
}

exported! {
    /// `sp_team_reduce` of the header.
    fn sp_team_reduce(
        team: *mut Handle<CTeam>,
        source: *const c_void,
        target: *mut c_void,
        count: usize,
        of: c_int,
        by: c_int,
        root: u32,
    ) -> c_int {
        call(|| {
            let (element, by) = reduction(of, by)?;
            let bytes = bytes_of(count, element.bytes())?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                let team = team_of(team)?;
                let target = into(target, bytes, team.rank() == root)?;
                team.reduce_bytes(from(source, bytes, true)?, target, root, element, by)?;
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_team_all_reduce` of the header.
    fn sp_team_all_reduce(
        team: *mut Handle<CTeam>,
        values: *mut c_void,
        count: usize,
        of: c_int,
        by: c_int,
    ) -> c_int {
        call(|| {
            let (element, by) = reduction(of, by)?;
            let bytes = bytes_of(count, element.bytes())?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { team_of(team)?.all_reduce_bytes(into(values, bytes, true)?, element, by)? };
            Ok(0)
        })
    }
}

/// A function of C's as the library calls it.
fn combining(
    combine: Option<CCombine>,
    context: *mut c_void,
) -> Result<impl FnMut(&mut [u8], &[u8]) + Send + 'static, Failure> {
    let combine = combine.ok_or_else(|| Failure::argument("the function that combines is NULL"))?;
    let context = Context::new(context);
    Ok(move |into: &mut [u8], from: &[u8]| {
        // SAFETY: the program has given the function for such bytes, and its context.
        unsafe { combine(into.as_mut_ptr().cast(), from.as_ptr().cast(), into.len(), context.get()) }
    })
}

exported! {
    /// `sp_team_reduce_with` of the header.
    fn sp_team_reduce_with(
        team: *mut Handle<CTeam>,
        source: *const c_void,
        target: *mut c_void,
        count: usize,
        each: usize,
        combine: Option<CCombine>,
        context: *mut c_void,
        root: u32,
    ) -> c_int {
        call(|| {
            let (combine, bytes) = (combining(combine, context)?, bytes_of(count, each)?);
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                let team = team_of(team)?;
                let target = into(target, bytes, team.rank() == root)?;
                team.reduce_bytes_with(from(source, bytes, true)?, target, root, each, combine)?;
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_team_all_reduce_with` of the header.
    fn sp_team_all_reduce_with(
        team: *mut Handle<CTeam>,
        values: *mut c_void,
        count: usize,
        each: usize,
        combine: Option<CCombine>,
        context: *mut c_void,
    ) -> c_int {
        call(|| {
            let (combine, bytes) = (combining(combine, context)?, bytes_of(count, each)?);
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { team_of(team)?.all_reduce_bytes_with(into(values, bytes, true)?, each, combine)? };
            Ok(0)
        })
    }
}

/// `sp_collective` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CCollective {
    size: usize,
    kind: i32,
    root: u32,
    from: *const c_void,
    into: *mut c_void,
    count: usize,
    sends: *const usize,
    receives: *const usize,
    of: i32,
    by: i32,
    each: usize,
    combine: Option<CCombine>,
    context: *mut c_void,
}

// SAFETY: it has integers and pointers alone, which may all be zero.
unsafe impl Params for CCollective {
    const NAME: &'static str = "sp_collective";
    const LEAST: usize = size_of::<CCollective>();
}

/// Starts a collective.
///
/// # Safety
/// Its pointers are as its kind asks.
unsafe fn start(team: &Team, what: &CCollective) -> Result<TeamEvent<u8>, Failure> {
    let CCollective { root, count, .. } = *what;
    let is_root = team.rank() == root;
    // SAFETY: the caller has promised what the header asks of these pointers.
    let own = |len: usize, is_used: bool| unsafe { from(what.from, len, is_used).map(<[u8]>::to_vec) };
    // SAFETY: the caller has promised what the header asks of these pointers.
    let shared = |len: usize| unsafe { from(what.into, len, true).map(<[u8]>::to_vec) };
    Ok(match what.kind {
        0 => team.barrier_nb(),
        1 => team.broadcast_nb(shared(count)?, root),
        2 => team.gather_nb(own(count, true)?, root),
        3 => team.scatter_nb(own(for_all(team, count)?, is_root)?, count, root),
        4 => team.all_gather_nb(own(count, true)?),
        5 => team.all_to_all_nb(own(for_all(team, count)?, true)?),
        6 => {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let [(sends, sent), (receives, _)] = unsafe { lengths(team, what.sends, what.receives)? };
            team.all_to_all_v_nb(own(sent, true)?, sends, receives)
        }
        7 | 8 if what.combine.is_some() => {
            let (combine, bytes) = (combining(what.combine, what.context)?, bytes_of(count, what.each)?);
            match what.kind {
                7 => team.reduce_bytes_with_nb(own(bytes, true)?, root, what.each, combine),
                _ => team.all_reduce_bytes_with_nb(shared(bytes)?, what.each, combine),
            }
        }
        7 | 8 => {
            let (element, by) = reduction(what.of, what.by)?;
            let bytes = bytes_of(count, element.bytes())?;
            match what.kind {
                7 => team.reduce_bytes_nb(own(bytes, true)?, root, element, by),
                _ => team.all_reduce_bytes_nb(shared(bytes)?, element, by),
            }
        }
        other => {
            return Err(Failure::value("the collective's kind", other.into(), "SP_BARRIER to SP_ALL_REDUCE"));
        }
    })
}

/// Bytes of the result that this member gets.
///
/// # Safety
/// As for [`start`].
unsafe fn result_len(team: &Team, what: &CCollective) -> Result<usize, Failure> {
    let is_root = team.rank() == what.root;
    Ok(match what.kind {
        1 | 3 => what.count,
        2 if !is_root => 0,
        2 | 4 | 5 => for_all(team, what.count)?,
        // SAFETY: the caller has promised what the header asks of these pointers.
        6 => unsafe { lengths(team, what.sends, what.receives)?[1].1 },
        7 if !is_root => 0,
        7 | 8 if what.combine.is_some() => bytes_of(what.count, what.each)?,
        7 | 8 => bytes_of(what.count, reduction(what.of, what.by)?.0.bytes())?,
        _ => 0,
    })
}

exported! {
    /// `sp_team_start` of the header.
    fn sp_team_start(
        team: *mut Handle<CTeam>,
        collective: *const CCollective,
        event: *mut *mut Handle<CEvent>,
    ) -> c_int {
        call(|| {
            pointer::needs(event, "event")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (team, what) = unsafe { (team_of(team)?, pointer::sized_or_refused(collective)?) };
            // SAFETY: the caller has promised what the header asks of these pointers.
            let result = unsafe { result_len(team, &what)? };
            pointer::is_there(what.into.cast::<u8>(), result, "`into`")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let started = unsafe { start(team, &what)? };
            let target = if result == 0 { std::ptr::null_mut() } else { what.into.cast() };
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(event, Handle::give(CEvent::Team(started, target)), "event")? };
            Ok(0)
        })
    }
}
