//! Reads a client's file and replaces it as a whole, so that nobody ever sees half of it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::document::Change;
use crate::complaint::Complaint;

/// Larger than any configuration that a person or a client writes.
const BYTES_MAX: u64 = 8 << 20;

/// How often to begin again when somebody else writes the file at the same time.
const TRIES_MAX: usize = 5;

const LINKS_MAX: usize = 40;

/// The rights of what has to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Modes {
    pub(crate) file: u32,
    pub(crate) folder: u32,
}

/// A file as it was at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// What there is behind the links, whose place is taken by the new file.
    real: PathBuf,
    metadata: Option<Metadata>,
    /// None if there is no file.
    pub(crate) text: Option<String>,
    /// Where the text is kept that was there before our first change.
    backup_path: PathBuf,
    pub(crate) backup: Option<String>,
}

/// What became of an edit.
#[derive(Debug)]
pub(crate) struct Edited {
    pub(crate) change: Change,
    /// The backup that is there now, if one was made now or earlier.
    pub(crate) backup: Option<PathBuf>,
}

impl Snapshot {
    pub(crate) fn of(path: &Path) -> Result<Snapshot, Complaint> {
        let real = behind_links(path)?;
        let metadata = match fs::metadata(&real) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(cannot("read", path, &error)),
        };
        let text = match &metadata {
            Some(metadata) => Some(read(path, &real, metadata)?),
            None => None,
        };
        let backup_path = beside(path, ".belljar-backup");
        let backup = fs::metadata(&backup_path).ok().and_then(|found| read(&backup_path, &backup_path, &found).ok());
        Ok(Snapshot { real, metadata, text, backup_path, backup })
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(ending);
    path.with_file_name(name)
}

/// The file that a path leads to, which need not exist.
fn behind_links(path: &Path) -> Result<PathBuf, Complaint> {
    let mut real = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&real) {
            // An absolute target replaces the whole path.
            Ok(target) => real = real.parent().unwrap_or(Path::new("")).join(target),
            // Not a link, or not there.
            Err(_) => return Ok(real),
        }
    }
    Err(Complaint::new(
        format!("{} is a link that leads in a circle", path.display()),
        "remove the link, then try again",
    ))
}

fn read(path: &Path, real: &Path, metadata: &Metadata) -> Result<String, Complaint> {
    let shown = path.display();
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a folder" } else { "not a regular file" };
        return Err(Complaint::new(format!("{shown} is {what}"), "move it away, then try again"));
    }
    let unread = |error: io::Error| cannot("read", path, &error);
    let mut bytes = Vec::new();
    File::open(real).map_err(unread)?.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unread)?;
    if bytes.len() as u64 > BYTES_MAX {
        let what = format!("{shown} is larger than {} MiB", BYTES_MAX >> 20);
        return Err(Complaint::new(what, "look whether it is the client's configuration at all"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Complaint::new(format!("{shown} is not UTF-8 text (at byte {at})"), "save it as UTF-8, then try again")
    })
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> Complaint {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "see whose it is with ls -l; with --print you get what belongs into it, to put there by other means"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "a file is where a folder should be; move it away",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on the disk, then try again",
        _ => "with --print you get what belongs into it, to put there by other means",
    };
    Complaint::new(format!("cannot {verb} {}: {error}", path.display()), hint)
}

/// Changes a file as `plan` says. If somebody else changes it meanwhile, begins again with what they wrote.
pub(crate) fn edit(
    path: &Path,
    modes: Modes,
    mut plan: impl FnMut(&Snapshot) -> Result<Change, Complaint>,
) -> Result<Edited, Complaint> {
    for _ in 0..TRIES_MAX {
        let snapshot = Snapshot::of(path)?;
        let change = plan(&snapshot)?;
        if change.after == snapshot.text {
            let backup = snapshot.backup.is_some().then_some(snapshot.backup_path);
            return Ok(Edited { change, backup });
        }
        if replace(path, &snapshot, change.after.as_deref(), modes).map_err(|error| cannot("write", path, &error))? {
            let backup = snapshot.backup_path.exists().then_some(snapshot.backup_path);
            return Ok(Edited { change, backup });
        }
    }
    let what = format!("{} changed again and again while it was edited", path.display());
    Err(Complaint::new(what, "quit the client that writes it, then try again"))
}

/// Puts a text in the file's place; false if the file is no longer as it was.
fn replace(path: &Path, before: &Snapshot, after: Option<&str>, modes: Modes) -> io::Result<bool> {
    let folder = before.real.parent().unwrap_or(Path::new("/"));
    if before.metadata.is_some() {
        // A file that we may not write is not to be replaced either, though its folder would let us.
        OpenOptions::new().write(true).open(&before.real)?;
    } else {
        make_folders(folder, modes.folder)?;
    }
    let new = after.map(|text| written(folder, text, before.metadata.as_ref(), modes)).transpose()?;
    let as_before = |now: &Snapshot| now.text == before.text && now.real == before.real;
    if !Snapshot::of(path).is_ok_and(|now| as_before(&now)) {
        return Ok(false);
    }
    // A file that goes held nothing that was not ours.
    if let (Some(text), Some(_)) = (&before.text, &new) {
        keep(&before.backup_path, text, before.metadata.as_ref(), modes)?;
    }
    match new {
        Some(new) => drop(new.persist(&before.real)?),
        None => fs::remove_file(&before.real)?,
    }
    // The name, too, is on the disk when we say so. Not every file system can promise that.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(true)
}

/// Keeps a text from before our first change, for good: a later one is not put in its place.
fn keep(path: &Path, text: &str, like: Option<&Metadata>, modes: Modes) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    match written(folder, text, like, modes)?.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.error),
    }
}

/// A file in that folder, safe on the disk, with the rights and the owner of the one that it will replace.
fn written(folder: &Path, text: &str, like: Option<&Metadata>, modes: Modes) -> io::Result<NamedTempFile> {
    let mode = like.map_or(modes.file, |like| like.mode() & 0o7777);
    let rights = fs::Permissions::from_mode(mode);
    let mut file = tempfile::Builder::new().prefix(".belljar-").permissions(rights.clone()).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    let owner = match like {
        Some(like) => (like.uid(), like.gid()),
        None => owner_of(folder)?,
    };
    let own = file.as_file().metadata()?;
    if like.is_some() || own.uid() == 0 {
        // Only root can give a file away, and nobody else has to.
        let _ = fchown(file.as_file(), Some(owner.0), Some(owner.1));
    }
    if like.is_some() {
        // Past the umask, and after the change of owner, which clears bits.
        file.as_file().set_permissions(rights)?;
    }
    file.as_file().sync_all()?;
    Ok(file)
}

fn owner_of(path: &Path) -> io::Result<(u32, u32)> {
    fs::metadata(path).map(|metadata| (metadata.uid(), metadata.gid()))
}

/// Makes a folder and those around it, for the owner of the one that they are in.
fn make_folders(folder: &Path, mode: u32) -> io::Result<()> {
    if folder.is_dir() || folder.as_os_str().is_empty() {
        return Ok(());
    }
    let above = folder.parent().unwrap_or(Path::new("/"));
    make_folders(above, mode)?;
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if !(error.kind() == ErrorKind::AlreadyExists && folder.is_dir()) => return Err(error),
        _ => {}
    }
    if owner_of(folder)?.0 == 0 {
        let (user, group) = owner_of(above)?;
        let _ = chown(folder, Some(user), Some(group));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::install::Did;

    const MODES: Modes = Modes { file: 0o600, folder: 0o700 };

    fn to(after: Option<&str>) -> Change {
        Change { did: Did::Added, after: after.map(str::to_owned), before: None, entry: None }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn what_others_write_meanwhile_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "a").unwrap();
        let mut seen = Vec::new();
        let edited = edit(&path, MODES, |now| {
            seen.push(now.text.clone().unwrap());
            if seen.len() == 1 {
                fs::write(&path, "b").unwrap();
            }
            Ok(to(Some(&format!("{}!", now.text.as_deref().unwrap()))))
        });
        assert_eq!((seen, fs::read_to_string(&path).unwrap()), (vec!["a".to_owned(), "b".to_owned()], "b!".to_owned()));
        let backup = edited.unwrap().backup.unwrap();
        assert_eq!(fs::read_to_string(&backup).unwrap(), "b");
        assert_eq!(names(folder.path()), ["f", "f.belljar-backup"]);

        // Somebody who never stops is given up on.
        let mut count = 0;
        let refused = edit(&path, MODES, |_| {
            count += 1;
            fs::write(&path, format!("c{count}")).unwrap();
            Ok(to(Some("ours")))
        });
        assert!(refused.unwrap_err().what.contains("again and again"));
        assert_eq!((count, fs::read_to_string(&path).unwrap()), (TRIES_MAX, format!("c{TRIES_MAX}")));
        assert_eq!(names(folder.path()), ["f", "f.belljar-backup"]);
        // The first backup stays.
        assert_eq!(fs::read_to_string(&backup).unwrap(), "b");
    }

    /// Also a file that comes to be, or goes.
    #[test]
    fn a_file_that_appears_is_read_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/f");
        let mut seen = Vec::new();
        edit(&path, MODES, |now| {
            seen.push(now.text.clone());
            if seen.len() == 1 {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, "theirs").unwrap();
            }
            Ok(to(Some("ours")))
        })
        .unwrap();
        assert_eq!(seen, [None, Some("theirs".to_owned())]);
    }

    #[test]
    fn links_rights_and_places_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("dotfiles")).unwrap();
        fs::write(at("dotfiles/real"), "a").unwrap();
        fs::set_permissions(at("dotfiles/real"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("dotfiles/real", at("link")).unwrap();
        symlink(at("link"), at("link2")).unwrap();
        edit(&at("link2"), MODES, |_| Ok(to(Some("b")))).unwrap();
        assert_eq!(fs::read_to_string(at("dotfiles/real")).unwrap(), "b");
        assert!(at("link").is_symlink() && at("link2").is_symlink());
        assert_eq!(fs::metadata(at("link")).unwrap().mode() & 0o7777, 0o640);
        let backup = fs::metadata(at("link2.belljar-backup")).unwrap();
        assert_eq!((backup.mode() & 0o7777, backup.len()), (0o640, 1));
        // A link to nothing yet.
        symlink("dotfiles/new/file", at("link3")).unwrap();
        edit(&at("link3"), MODES, |_| Ok(to(Some("c")))).unwrap();
        assert_eq!(fs::read_to_string(at("dotfiles/new/file")).unwrap(), "c");
        assert_eq!(fs::metadata(at("dotfiles/new")).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::metadata(at("dotfiles/new/file")).unwrap().mode() & 0o7777, 0o600);
        // A circle.
        symlink("circle", at("circle")).unwrap();
        assert!(Snapshot::of(&at("circle")).unwrap_err().what.contains("circle"));
    }

    #[test]
    fn nothing_to_do_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "a").unwrap();
        let before = fs::metadata(&path).unwrap();
        edit(&path, MODES, |_| Ok(to(Some("a")))).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!((before.ino(), before.ctime_nsec()), (after.ino(), after.ctime_nsec()));
        assert_eq!(names(folder.path()), ["f"]);
        edit(&path, MODES, |_| Ok(to(None))).unwrap();
        assert!(names(folder.path()).is_empty());
    }
}
