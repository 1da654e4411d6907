//! One Debian package: its files, its control data, and what of other packages it needs.

use super::licences::Licences;
use crate::c_library::VERSION;
use crate::command::{Failure, root, run};
use crate::tree::Piece;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The packages' version: the library's, and Debian's own part of it.
pub(super) const REVISION: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

/// All packages' descriptions go on with this.
const DESCRIPTION: &str =
    " Standpipe lets the processes of a job read and write any main memory of each other,
 on one host or over a network. Nobody registers that memory or exchanges keys.
";

/// A package that is to be built.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) section: &'static str,
    /// Whether it can be installed for several architectures at a time.
    pub(super) same: bool,
    pub(super) depends: Vec<String>,
    pub(super) suggests: Option<&'static str>,
    /// A description of one line.
    pub(super) summary: &'static str,
    /// Its files, below `/usr`.
    pub(super) pieces: Vec<Piece>,
    /// A library's line for `dpkg-shlibdeps`, by which other packages find out that they need it.
    pub(super) shlibs: Option<String>,
    pub(super) licences: Licences,
}

impl Package {
    /// Builds it into `out`, and gives its path. `quick`: in a tenth of the time, and larger.
    pub(super) fn build(&self, out: &Path, quick: bool) -> Result<PathBuf, Failure> {
        let stage = tempfile::tempdir().map_err(|why| Failure(format!("no temporary folder: {why}")))?;
        let stage = stage.path();
        // Where it unpacks to, all may enter.
        fs::set_permissions(stage, fs::Permissions::from_mode(0o755))
            .map_err(|why| Failure(format!("a new folder: {why}")))?;
        for piece in &self.pieces {
            piece.put(&stage.join("usr"))?;
        }
        self.document(stage)?;
        let size = run("du --summarize --apparent-size --block-size=1K").arg(stage.join("usr")).output()?;
        let size = size.split_whitespace().next().unwrap_or_default().to_owned();
        let architecture = run("dpkg --print-architecture").output()?.trim().to_owned();
        let write = |name: &str, text: String| Piece::text(name, text).put(&stage.join("DEBIAN"));
        let sums = run("sh -euc").arg("find usr -type f -print0 | sort -z | xargs -0 md5sum").dir(stage);
        write("md5sums", sums.output()?)?;
        write("control", self.control(&architecture, &size))?;
        if let Some(shlibs) = &self.shlibs {
            write("shlibs", shlibs.clone())?;
            write("triggers", "activate-noawait ldconfig\n".into())?;
        }
        let deb = out.join(format!("{}_{REVISION}_{architecture}.deb", self.name));
        let packed = if quick { "-Zgzip -z1" } else { "-Zxz" };
        run("dpkg-deb --root-owner-group").args(packed).args("--build").arg(stage).arg(&deb).status()?;
        Ok(deb)
    }

    /// Adds what Debian wants of each package: its licences, and what changed.
    fn document(&self, stage: &Path) -> Result<(), Failure> {
        let folder = Path::new("usr/share/doc").join(&self.name);
        let put = |name: &str, text: String| Piece::text(folder.join(name), text).put(stage);
        put("copyright", self.licences.copyright()?)?;
        let packed = [
            put("third-party-licences", self.licences.texts()?)?,
            put("changelog", read("CHANGELOG.md")?)?,
            put("changelog.Debian", changelog()?)?,
        ];
        let manuals = stage.join("usr/share/man");
        let manuals = Some(manuals).filter(|folder| folder.exists());
        packed.iter().chain(&manuals).try_for_each(|path| run("gzip --recursive -9n").arg(path).status())
    }

    fn control(&self, architecture: &str, size: &str) -> String {
        let field = |name: &str, value: &str| match value {
            "" => String::new(),
            value => format!("{name}: {value}\n"),
        };
        [
            field("Package", &self.name),
            field("Source", "standpipe"),
            field("Version", REVISION),
            field("Section", self.section),
            field("Priority", "optional"),
            field("Architecture", architecture),
            field("Multi-Arch", if self.same { "same" } else { "foreign" }),
            field("Maintainer", &maintainer()),
            field("Installed-Size", size),
            field("Depends", &self.depends.join(", ")),
            field("Suggests", self.suggests.unwrap_or_default()),
            field("Description", self.summary),
            DESCRIPTION.to_owned(),
        ]
        .concat()
    }
}

/// A file of the workspace's root.
fn read(name: &str) -> Result<String, Failure> {
    fs::read_to_string(root().join(name)).map_err(|why| Failure(format!("{name}: {why}")))
}

/// The packages' maintainer, by the variables that Debian's tools read.
fn maintainer() -> String {
    let of = |name, or: &str| std::env::var(name).unwrap_or_else(|_| or.to_owned());
    format!("{} <{}>", of("DEBFULLNAME", "Standpipe's developers"), of("DEBEMAIL", "standpipe@localhost"))
}

/// The packaging's own changelog, of the last commit's date.
fn changelog() -> Result<String, Failure> {
    let date = run("git log -1 --format=%cD").output()?;
    let text = format!("standpipe ({REVISION}) unstable; urgency=medium\n\n  * Version {VERSION}.\n\n");
    Ok(text + &format!(" -- {}  {}\n", maintainer(), date.trim()))
}

/// A shared library that a program needs, and the newest of its versions that it asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Need {
    library: String,
    /// The numbers of the newest version node of the C library; empty where there is none.
    version: Vec<u32>,
}

/// The libraries that a program or library needs.
pub(super) fn needs(file: &Path) -> Result<Vec<Need>, Failure> {
    Ok(told_needs(&run("objdump -p").arg(file).output()?))
}

fn told_needs(objdump: &str) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    let mut of = None;
    for line in objdump.lines().map(str::trim) {
        if let Some(library) = line.strip_prefix("NEEDED") {
            needs.push(Need { library: library.trim().to_owned(), version: vec![] });
        } else if let Some(library) = line.strip_prefix("required from ") {
            of = needs.iter().position(|need| need.library == library.trim_end_matches(':'));
        } else if let (Some(at), Some((_, version))) = (of, line.rsplit_once("GLIBC_")) {
            let version = version.split('.').filter_map(|number| number.parse().ok()).collect();
            needs[at].version = std::cmp::max(std::mem::take(&mut needs[at].version), version);
        }
    }
    needs
}

/// The packages of Debian that have these, each once.
pub(super) fn wanted(needs: &[Need]) -> Result<Vec<String>, Failure> {
    let mut glibc = vec![];
    let mut packages = BTreeSet::new();
    for need in needs {
        match &*need.library {
            "libgcc_s.so.1" => _ = packages.insert("libgcc-s1 (>= 4.2)".to_owned()),
            "libatomic.so.1" => _ = packages.insert("libatomic1 (>= 4.8)".to_owned()),
            name if is_of_glibc(name) => glibc = std::cmp::max(glibc, need.version.clone()),
            name => return Err(Failure(format!("no package of Debian's is known to have {name}"))),
        }
    }
    if !glibc.is_empty() {
        let version: Vec<String> = glibc.iter().map(u32::to_string).collect();
        packages.insert(format!("libc6 (>= {})", version.join(".")));
    }
    Ok(packages.into_iter().collect())
}

fn is_of_glibc(library: &str) -> bool {
    let names = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1"];
    names.contains(&library) || library.starts_with("ld-linux")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJDUMP: &str = "
Dynamic Section:
  NEEDED               libgcc_s.so.1
  NEEDED               libm.so.6
  NEEDED               libc.so.6
  SONAME               libx.so.1

Version References:
  required from libgcc_s.so.1:
    0x0b792650 0x00 11 GCC_3.0
  required from libc.so.6:
    0x06969194 0x00 10 GLIBC_2.34
    0x09691972 0x00 02 GLIBC_2.4
    0x09691974 0x00 04 GLIBC_2.3.4
";

    #[test]
    fn packages_follow_from_libraries_and_their_newest_versions() {
        let needs = told_needs(OBJDUMP);
        assert_eq!(needs[2], Need { library: "libc.so.6".into(), version: vec![2, 34] });
        assert_eq!(wanted(&needs), Ok(vec!["libc6 (>= 2.34)".into(), "libgcc-s1 (>= 4.2)".into()]));
        let strange = told_needs("  NEEDED   libstrange.so.7\n");
        assert_eq!(wanted(&strange).map_err(|why| why.0.contains("libstrange.so.7")), Err(true));
    }
}
