#!/bin/sh
# Fetches axe-core (MPL-2.0; used by the browser tests alone, never shipped) into .cache/axe-core.
set -e
cd "$(dirname "$0")/../../.."
[ -f .cache/axe-core/axe.min.js ] && exit 0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
(cd "$folder" && npm pack --silent axe-core@4.10.3 >/dev/null)
mkdir -p .cache/axe-core
tar xzf "$folder"/axe-core-4.10.3.tgz -C .cache/axe-core --strip-components=1 package/axe.min.js package/LICENSE
