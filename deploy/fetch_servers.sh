#!/bin/sh
# Puts Debian's prometheus, promtool, prometheus-alertmanager and amtool into .cache/servers, where the tests look for them.
# Nothing is installed, no service is started, no root is needed. Elsewhere than on Debian or Ubuntu: put them on the PATH.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
target=$root/.cache/servers
if [ -x "$target/usr/bin/promtool" ] && [ -x "$target/usr/bin/prometheus-alertmanager" ]; then
    echo "$target/usr/bin"
    exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
    echo "fetch_servers: needs apt-get and dpkg-deb; put prometheus, promtool and prometheus-alertmanager on the PATH instead" >&2
    exit 1
}
mkdir -p "$root/.cache"
work=$(mktemp -d "$root/.cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
(cd "$work" && apt-get -qq download prometheus prometheus-alertmanager)
for package in "$work"/*.deb; do
    dpkg-deb -x "$package" "$work/tree"
done
rm -rf "$target"
mv "$work/tree" "$target"
echo "$target/usr/bin"
