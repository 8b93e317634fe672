#!/usr/bin/env bash
# A long line that a program prints to stderr by fprintf is several writes with newer C libraries, so lines of several
# processes that share a terminal, a pipe or a launcher of ranks (mpiexec) are mixed in their middle.
#
# Expected: fprintf(stderr, "%s\n", text) is one write(2), since stderr has no buffer; writes of less than PIPE_BUF bytes
# to a pipe are never mixed with others.
# Seen: glibc 2.36 (Debian 12) writes a line of 300 characters at once, glibc 2.41 (Debian 13) in pieces of 128 bytes.
# fputs and fwrite write it at once with both. A test that looked for the error of each rank in the output of mpiexec
# passed on Debian 12, and failed on Ubuntu 24.04 (glibc 2.39) in two of three runs on a busy machine.
#
# Remedy: format into a string, and write it by fwrite or fputs.
set -euo pipefail
shopt -s inherit_errexit
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
chmod 755 .
cat >lines.c <<'C'
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// Returns the number of writes since the last call: a socket of packets keeps them apart.
static int writes(int from) {
  char piece[4096];
  int count = 0;
  while (recv(from, piece, sizeof piece, MSG_DONTWAIT) > 0) ++count;
  return count;
}

int main(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return 1;
  char text[301];
  memset(text, 'a', 300);
  text[300] = '\0';
  fprintf(stderr, "%s\n", text);
  const int by_fprintf = writes(ends[0]);
  fputs(text, stderr);
  printf("fprintf %d fputs %d\n", by_fprintf, writes(ends[0]));
  return 0;
}
C
gcc -O1 -Wall lines.c -o lines

# get SUITE VERSION: unpacks glibc, as the mirror has it that apt uses here, and runs the program with it.
get() {
  mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Codename: bookworm" | head -n 1)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $1 main" >"$1/sources.list"
  local options=(-qq -o APT::Sandbox::User=root -o "Dir::Etc::SourceList=$PWD/$1/sources.list"
    -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$PWD/$1/lists" -o "Dir::Cache=$PWD/$1/cache")
  apt-get "${options[@]}" update
  apt-get "${options[@]}" download "libc6=$2"
  dpkg -x libc6_*.deb "$1/root"
  rm libc6_*.deb
  local libraries=$1/root/usr/lib/x86_64-linux-gnu
  [ -d "$libraries" ] && [ -e "$libraries/ld-linux-x86-64.so.2" ] || libraries=$1/root/lib/x86_64-linux-gnu
  "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" ./lines
}
old=$(get bookworm 2.36-9+deb12u14)
new=$(get trixie 2.41-12+deb13u5)
echo "glibc 2.36: $old; glibc 2.41: $new"
[ "$old" = "fprintf 1 fputs 1" ] && [ "$new" = "fprintf 3 fputs 1" ] || { echo "this has changed" >&2; exit 1; }
