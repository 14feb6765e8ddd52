#!/bin/sh
# Fetches Grafana's own types of a dashboard and the TypeScript compiler into .cache/grafana-schema (used by tests alone, never
# shipped; both Apache-2.0). Exit code 1, and one line that says why, where they cannot be had.
set -e
cd "$(dirname "$0")/../../.."
schema=@grafana/schema@12.2.1
compiler=typescript@5.9.3
target=.cache/grafana-schema
[ -f $target/complete ] && exit 0
command -v npm >/dev/null || { echo "fetch_schema: needs npm" >&2; exit 1; }
mkdir -p .cache
folder=$(mktemp -d .cache/schema.XXXXXX)
trap 'rm -rf "$folder"' EXIT
(cd "$folder" && npm install --silent --no-audit --no-fund --ignore-scripts $schema $compiler >/dev/null) ||
    { echo "fetch_schema: npm cannot fetch $schema and $compiler" >&2; exit 1; }
touch "$folder/complete"
rm -rf $target
mv "$folder" $target
trap - EXIT
