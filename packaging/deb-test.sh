#!/usr/bin/env bash
# Installs, uses, upgrades and removes the package on a Debian 12 of its own. Needs root.
#   packaging/deb-test.sh target/release/bundle/deb/*.deb
#
# That Debian has its own mounts and process numbers (namespaces), which end with the test: nothing of
# this machine is mounted into it, and no signal leaves it.
set -euo pipefail
cd "$(dirname "$0")/.."
package=$(realpath "${1:?name the package}")

say() { printf '== %s\n' "$*"; }
fail() {
    printf 'deb-test: %s\n' "$*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "a Debian of its own can only be made by root"
command -v debootstrap >/dev/null || apt-get install -y --no-install-recommends debootstrap >/dev/null

# A Debian is made once, with what a desktop has and the package does not bring; each run takes a copy.
base=$PWD/target/deb-test/base
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)}
if [ ! -f "$base/.whole" ]; then
    say "making a Debian 12"
    rm -rf "$base"
    mkdir -p "$base"
    debootstrap --variant=minbase bookworm "$base" "$mirror" >"$base.log" || fail "see $base.log"
    # The same rules for the archive as on this machine.
    cp /etc/apt/apt.conf.d/* "$base/etc/apt/apt.conf.d/"
    chroot "$base" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        xvfb dbus procps desktop-file-utils man-db bash-completion >>"$base.log"
    chroot "$base" useradd --create-home user
    touch "$base/.whole"
fi

if [ -z "${DEB_TEST_ROOT:-}" ]; then
    root=$(mktemp -d "$PWD/target/deb-test/root.XXXXXX")
    trap 'rm -rf --one-file-system "$root"' EXIT
    cp -a "$base/." "$root/"
    DEB_TEST_ROOT=$root unshare --mount --pid --fork --kill-child "$0" "$package"
    exit
fi

root=$DEB_TEST_ROOT
mount -t proc proc "$root/proc"
mount -t tmpfs dev "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/zero" c 1 5
mknod -m 666 "$root/dev/random" c 1 8
mknod -m 666 "$root/dev/urandom" c 1 9
mkdir -m 1777 "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"

inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
as_user() { inside su --login user --command "export XDG_RUNTIME_DIR=\$HOME; $1"; }
# until_true <seconds> <command…>
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || fail "in vain: $*; $("$@" 2>&1; tail -n 20 "$root/home/user/desktop.log")"
        sleep 0.2
    done
}
gone() { ! inside pgrep -u user traygate; }

# The same package as an earlier version, to upgrade from.
mkdir "$root/packages"
cp "$package" "$root/packages/new.deb"
dpkg-deb --raw-extract "$package" "$root/packages/old"
sed -i 's/^Version: .*/Version: 0.0.1/' "$root/packages/old/DEBIAN/control"
dpkg-deb --root-owner-group --build "$root/packages/old" "$root/packages/old.deb" >/dev/null
version=$(dpkg-deb --field "$package" Version)

say "install 0.0.1"
dpkg-deb --info "$package"
inside apt-get install -y --no-install-recommends /packages/old.deb >"$root/install.log" 2>&1 ||
    fail "$(tail -n 20 "$root/install.log")"
inside desktop-file-validate /usr/share/applications/Traygate.desktop
inside man --where traygate traygate-add
inside bash -n /usr/share/bash-completion/completions/traygate
for library in /usr/bin/traygate /usr/bin/traygate-desktop; do
    if inside ldd "$library" | grep "not found"; then fail "$library lacks a library"; fi
done

say "start on a desktop, hidden"
as_user 'Xvfb :7 -screen 0 1024x768x24 -nolisten tcp >/dev/null 2>&1 &'
desktop='DISPLAY=:7 dbus-run-session -- traygate-desktop --hidden >>desktop.log 2>&1 &'
as_user "$desktop"
until_true 30 as_user 'traygate status'
as_user 'traygate add mine -- sleep 1000' || true
as_user 'traygate disable mine'
as_user 'traygate status'

say "upgrade to $version under the running one"
inside apt-get install -y --no-install-recommends /packages/new.deb >"$root/upgrade.log" 2>&1 ||
    fail "$(tail -n 20 "$root/upgrade.log")"
[ "$(inside dpkg-query --show --showformat '${Version}' traygate)" = "$version" ] || fail "it was not upgraded"
as_user 'traygate shutdown'
until_true 10 gone
as_user "$desktop"
until_true 30 as_user 'traygate status'
as_user 'traygate list' | grep -q mine || fail "what the user chose did not survive the upgrade"

say "remove"
as_user 'traygate shutdown'
until_true 10 gone
inside dpkg-query --listfiles traygate | while read -r path; do
    [ -d "$root$path" ] || echo "$path"
done >"$root/files"
inside apt-get purge -y traygate >"$root/remove.log" 2>&1 || fail "$(tail -n 20 "$root/remove.log")"
while read -r path; do
    [ ! -e "$root$path" ] || fail "$path was left behind"
done <"$root/files"
[ -f "$root/home/user/.local/share/traygate/traygate.db" ] || fail "the user's choices went with the package"
say "all is well: $(wc -l <"$root/files") files came and went, and what the user chose is still there"
