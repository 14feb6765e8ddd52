#!/bin/sh
# Puts Debian's prometheus, promtool, prometheus-alertmanager, amtool and vmalert into .cache/servers, where the tests look for
# them. Nothing is installed, no service is started, no root is needed unless apt's lists are missing. Elsewhere than on Debian or
# Ubuntu: put them on the PATH. Exit code 1, and one line that says why, where they cannot be had.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
target=$root/.cache/servers
complete() {
    for name in prometheus promtool prometheus-alertmanager vmalert; do
        [ -x "$target/usr/bin/$name" ] || command -v "$name" >/dev/null || return 1
    done
}
complete && exit 0
say() {
    echo "fetch_servers: $1; put prometheus, promtool, prometheus-alertmanager and vmalert on the PATH instead" >&2
    exit 1
}
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || say "needs apt-get and dpkg-deb"
mkdir -p "$root/.cache"
work=$(mktemp -d "$root/.cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
# Offline, a set-up should go on after seconds rather than minutes.
apt() { apt-get -qq -o Acquire::http::Timeout=20 -o Acquire::Retries=1 "$@" >apt.log 2>&1; }
download() {
    apt download prometheus prometheus-alertmanager || return 1
    apt download victoria-metrics || echo "fetch_servers: no package victoria-metrics here: tests with vmalert are skipped" >&2
}
# A fresh machine, a container above all, has no lists of packages yet, and only root may fetch them.
download || { [ "$(id -u)" = 0 ] && apt update && download; } || say "apt-get cannot download them: $(tail -n 1 apt.log)"
for package in ./*.deb; do
    dpkg-deb -x "$package" tree
done
# Of VictoriaMetrics the tests need vmalert alone; the rest is four fifths of the unpacked tree.
find tree/usr/bin -name 'v*' ! -name vmalert -delete
rm -rf "$target"
mv tree "$target"
echo "$target/usr/bin"
