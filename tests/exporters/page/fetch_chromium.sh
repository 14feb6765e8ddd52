#!/bin/sh
# Installs Debian's chromium for the browser tests where none is there and we may (root, apt). Exit 1 where it cannot be had.
set -eu
command -v chromium >/dev/null && exit 0
command -v google-chrome >/dev/null && exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "no chromium, and no root to install it" >&2; exit 1; }
install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null; }
install || { apt-get -qq update && install; }
