#!/bin/sh
# deps.sh build|run|test: installs the Debian packages that are missing, says which and why, and lets
# none of them start or enable a system service. Nothing missing: one question to dpkg, no root.
# DEPS=skip leaves it out.
set -eu

# set|package|why. "run" needs "build" too, "test" needs both.
packages='
build|gcc|C compiler
build|make|build
build|libc6-dev|C library
build|libh2o-evloop-dev|HTTP/1.1, HTTP/2
build|libssl-dev|TLS, hashes
build|zlib1g-dev|H2O needs it
build|libhiredis-dev|Redis client
build|libpq-dev|PostgreSQL client
build|libjansson-dev|JSON
build|libpcre2-dev|pre-tokenizers
build|libutf8proc-dev|Unicode
build|libyaml-dev|configuration
build|libxxhash-dev|checksums
build|libseccomp-dev|the engine locks itself in
run|postgresql|private database of a run
run|redis-server|private Redis of a run
run|python3|fetches the demo model, runs the SDK
run|python3-venv|fetches the demo model, runs the SDK
run|ca-certificates|fetches over TLS
run|curl|the commands that a start prints
test|git|lint looks at tracked files
test|clang|fuzz targets
test|libcmocka-dev|unit tests
test|libsimde-dev|AVX-512 kernels on a machine without it
test|cppcheck|lint
'
fuzz_12='test|libclang-rt-14-dev|fuzz targets'
fuzz_13='test|libclang-rt-19-dev|fuzz targets'
# The one version whose layout and warnings `make lint` holds the tree to is Debian 12's.
lint_12='test|clang-format-14|lint
test|clang-tidy-14|lint'

say()
{
    echo "deps: $*" >&2
}

die()
{
    say "$*"
    exit 1
}

release()
{
    (. /etc/os-release 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}") || echo unknown
}

wanted_rows()
{
    case $1 in
    build) sets='^build' ;;
    run) sets='^build|^run' ;;
    test) sets='^build|^run|^test' ;;
    *) die "usage: deps.sh build|run|test" ;;
    esac
    case $(release) in
    'debian 12'*) all="$packages$fuzz_12
$lint_12" ;;
    'debian 13'*) all="$packages$fuzz_13" ;;
    *) die "this is not Debian 12 or 13: install what the table in tools/deps.sh names and set DEPS=skip" ;;
    esac
    echo "$all" | grep -E "$sets"
}

# Rows of packages that are not installed.
missing_rows()
{
    rows=$1
    # shellcheck disable=SC2046  # package names have no spaces
    have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $(echo "$rows" | cut -d'|' -f2) 2>/dev/null || true)
    echo "$rows" | while IFS='|' read -r set package why; do
        echo "$have" | grep -qx "installed $package" || echo "$set|$package|$why"
    done
}

# ---- services: none may start, none may be enabled ----

policy=/usr/sbin/policy-rc.d
kept=$policy.sluice-kept
mark='# placed by tools/deps.sh while it installs'
cluster=/etc/postgresql-common/createcluster.conf

forbid_starts()
{
    # One of ours was left by a run that was killed.
    if [ -e "$policy" ] && ! grep -qxF "$mark" "$policy"; then mv "$policy" "$kept"; fi
    printf '#!/bin/sh\n%s\nexit 101\n' "$mark" > "$policy"
    chmod 755 "$policy"
}

allow_starts()
{
    if grep -qxsF "$mark" "$policy"; then rm -f "$policy"; fi
    if [ -e "$kept" ]; then mv "$kept" "$policy"; fi
}

# Debian's package would make a cluster of its own under /var/lib/postgresql: ours lies under DIR.
forbid_cluster()
{
    [ -e "$cluster" ] && return
    mkdir -p "${cluster%/*}"
    echo 'create_main_cluster = false' > "$cluster"
}

links()
{
    find /etc/systemd/system /etc/rc2.d /etc/rc3.d /etc/rc4.d /etc/rc5.d -type l 2>/dev/null | sort
}

# Units and init scripts that became enabled since the list $1 was made.
disable_new()
{
    links | comm -13 "$1" - | while read -r link; do
        name=${link##*/}
        case $link in
        # Wishes and aliases; Debian's helper takes a unit without its link for one that was disabled.
        /etc/systemd/system/*) rm -f "$link" ;;
        /etc/rc?.d/S[0-9][0-9]*) update-rc.d "${name#S[0-9][0-9]}" disable >/dev/null 2>&1 || rm -f "$link" ;;
        esac
    done
}

# ---- Debian 13 has no package of H2O: it comes from Debian 12, and nothing else does ----

add_h2o_source()
{
    case $(release) in 'debian 13'*) ;; *) return 0 ;; esac
    apt-cache policy libh2o-evloop-dev | grep -q 'Candidate: [^(]' && return 0
    uri=$(apt-get indextargets --format '$(ORIGIN)|$(CODENAME)|$(REPO_URI)' 'Created-By: Packages' |
        sed -n 's/^Debian|trixie|//p' | head -n 1)
    [ -n "$uri" ] || die "no package source of Debian 13 is configured, so none of Debian 12 (for H2O) can be derived"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e "$keyring" ] || keyring=/usr/share/keyrings/debian-archive-keyring.pgp
    [ -e "$keyring" ] || die "the package debian-archive-keyring is missing"
    # 100 is the priority of what is installed: a package of 13 always wins.
    printf 'Package: *\nPin: release n=bookworm\nPin-Priority: 100\n' > /etc/apt/preferences.d/sluice-h2o
    printf 'Types: deb\nURIs: %s\nSuites: bookworm\nComponents: main\nSigned-By: %s\n' "$uri" "$keyring" \
        > /etc/apt/sources.list.d/sluice-h2o.sources
    say "H2O comes from Debian 12, pinned below everything of Debian 13"
    apt-get update -qq
}

install_rows()
{
    names=$(echo "$1" | cut -d'|' -f2)
    before=$(mktemp)
    trap 'allow_starts; rm -f "$before" "$before.log"' EXIT
    trap 'exit 130' INT TERM HUP
    apt-get update -qq || die "the package lists can't be fetched: is there a network?"
    add_h2o_source
    forbid_starts
    forbid_cluster
    links > "$before"
    # shellcheck disable=SC2086  # package names have no spaces
    DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1 apt-get install -y -qq --no-install-recommends \
        -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold $names > "$before.log" 2>&1 || {
        tail -n 20 "$before.log" >&2
        die "the packages could not be installed"
    }
    disable_new "$before"
}

if [ "${DEPS:-}" = skip ]; then exit 0; fi
rows=$(wanted_rows "${1:-}")
missing=$(missing_rows "$rows")
if [ -z "$missing" ]; then exit 0; fi
say "missing packages:"
echo "$missing" | while IFS='|' read -r set package why; do
    printf '  %-20s %s\n' "$package" "$why" >&2
done
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "install them as root, or set DEPS=skip"
    exec sudo sh "$0" "$1"
fi
install_rows "$missing"
say "installed"
