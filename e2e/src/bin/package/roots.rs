//! A clean root of a Debian release, made by debootstrap from the mirror that this machine uses.

use std::fs;
use std::path::{Path, PathBuf};

use e2e::failure::require;
use e2e::{OrFail, Result, tools};

/// Runs in the root: installs, uses, purges. What it prints last says what was seen.
const STORY: &str = r#"set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
trap 'echo "stopped at line $LINENO"' ERR
say() { echo "== $*"; }
rm -f /usr/sbin/policy-rc.d
apt-get update -q
apt-get install -y -q --no-install-recommends /package.deb
say "$(ashlar --version)"
dpkg -L ashlar | sort >/files
for file in /usr/bin/ashlar /etc/ashlar/ashlar.toml /usr/lib/systemd/system/ashlar.service \
    /usr/lib/systemd/system/ashlar-attach@.service /usr/lib/sysusers.d/ashlar.conf /usr/lib/tmpfiles.d/ashlar.conf \
    /usr/lib/udev/rules.d/60-ashlar.rules /usr/share/zsh/vendor-completions/_ashlar \
    /usr/share/fish/vendor_completions.d/ashlar.fish; do
    test -f $file
done
zcat /usr/share/man/man1/ashlar.1.gz | grep -q '^.TH ashlar 1'
bash -c 'source /usr/share/bash-completion/completions/ashlar && complete -p ashlar' >/dev/null
test "$(stat -c %U:%a /var/lib/ashlar)" = ashlar:755
grep -q '^disk:' /etc/group
say files

# As the unit runs it, with drives that are files.
mkdir /srv/drives /run/ashlar
cd /srv/drives
ashlar create lab --raid 5 --size 288M a b c d >/dev/null
ashlar volume create lab/v 64M >/dev/null
chown -R ashlar:ashlar /srv/drives /run/ashlar
test "$(stat -c %U /var/lib/ashlar/arrays.toml)" = ashlar
setpriv --reuid ashlar --regid ashlar --clear-groups ashlar --control /run/ashlar/ashlar.sock --state-dir /var/lib/ashlar \
    serve --config /etc/ashlar/ashlar.toml 2>/log &
# Not `status`, which looks at the drives itself where no server answers.
for n in $(seq 300); do ashlar clients >/dev/null 2>&1 && break; sleep 0.2; done
ashlar clients >/dev/null && ashlar status lab | grep -q optimal || { cat /log; exit 1; }
test -S /run/ashlar/ashlar-nbd.sock
ashlar stop >/dev/null
wait
say served

sha256sum /srv/drives/* >/sums
apt-get purge -y -q ashlar
while read -r file; do test -d "$file" || ! test -e "$file" || { echo "left: $file"; exit 1; }; done </files
for place in /etc/ashlar /var/lib/ashlar /run/ashlar; do ! test -e $place || { echo "left: $place"; exit 1; }; done
find / -xdev -name '*ashlar*' -not -path '/proc/*' -not -path '/var/log/*' -not -path '/package.deb' >/left
test ! -s /left || { cat /left; exit 1; }
sha256sum --quiet -c /sums
say purged
"#;

/// Goes through the story in a root of `suite`; the drives of its array are left in the directory that is returned.
pub fn story(dir: &Path, suite: &str, package: &Path) -> Result<PathBuf> {
    let root = made(dir, suite)?;
    fs::copy(package, root.join("package.deb")).or_fail("the package")?;
    fs::write(root.join("story"), STORY).or_fail("the story")?;
    fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf")).or_fail("/etc/resolv.conf")?;
    // Its processes end with it, and its mounts go.
    let enter = format!(
        "mount -t proc proc '{0}/proc' && mount --rbind /dev '{0}/dev' && exec chroot '{0}' bash /story 2>&1",
        root.display()
    );
    let args = ["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", &enter];
    let printed = tools::run(dir, "unshare", &args)?;
    for seen in ["== ashlar 0.1.0", "== files", "== served", "== purged"] {
        require(printed.contains(seen), "the story", || printed.clone())?;
    }
    Ok(root.join("srv/drives"))
}

/// The root, unpacked.
fn made(dir: &Path, suite: &str) -> Result<PathBuf> {
    let root = dir.join(suite);
    let to = root.display().to_string();
    tools::run(dir, "debootstrap", &["--variant=minbase", "--include=ca-certificates", suite, &to, &tools::mirror()?])?;
    Ok(root)
}
