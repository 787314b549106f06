// A disk with faults, put before the C library by LD_PRELOAD. It counts calls on files of a log only.
//
//   FAULTY_SYNC=N      the Nth sync of a segment fails once with EIO, and what was written to it since its last sync is
//                      gone, as on Linux: the kernel drops the pages, and the next sync succeeds
//   FAULTY_WRITE=N     the Nth write to a temporary file fails with ENOSPC, and all further ones
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { FILES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static off_t unsynced_from[FILES], unsynced_to[FILES];
static long syncs, writes;

static long setting(const char *name) {
  const char *value = getenv(name);
  return value ? atol(value) : 0;
}

static int is_named(int fd, const char *prefix) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(link, path, sizeof path - 1);
  if (len < 0) return 0;
  path[len] = 0;
  const char *name = strrchr(path, '/');
  return name && strncmp(name + 1, prefix, strlen(prefix)) == 0;
}

// Returns whether a write fails.
static int is_full(int fd) {
  long fails = setting("FAULTY_WRITE");
  if (!fails || !is_named(fd, "tmp-")) return 0;
  pthread_mutex_lock(&lock);
  int is_full = ++writes >= fails;
  pthread_mutex_unlock(&lock);
  return is_full;
}

static void note_write(int fd, off_t from, ssize_t len) {
  if (len <= 0 || fd >= FILES) return;
  pthread_mutex_lock(&lock);
  if (unsynced_to[fd] == 0 || from < unsynced_from[fd]) unsynced_from[fd] = from;
  if (from + len > unsynced_to[fd]) unsynced_to[fd] = from + len;
  pthread_mutex_unlock(&lock);
}

static ssize_t write_at(int fd, const void *bytes, size_t len, off_t from, const char *name) {
  ssize_t (*next)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, name);
  if (is_full(fd)) {
    errno = ENOSPC;
    return -1;
  }
  ssize_t done = next(fd, bytes, len, from);
  note_write(fd, from, done);
  return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t from) { return write_at(fd, bytes, len, from, "pwrite"); }

ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t from) {
  return write_at(fd, bytes, len, from, "pwrite64");
}

ssize_t write(int fd, const void *bytes, size_t len) {
  ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  if (is_full(fd)) {
    errno = ENOSPC;
    return -1;
  }
  return next(fd, bytes, len);
}

static int sync_file(int fd, const char *name) {
  int (*next)(int) = dlsym(RTLD_NEXT, name);
  if (fd >= FILES || !is_named(fd, "seg-")) return next(fd);
  pthread_mutex_lock(&lock);
  int fails = ++syncs == setting("FAULTY_SYNC");
  off_t from = unsynced_from[fd], to = unsynced_to[fd];
  unsynced_from[fd] = unsynced_to[fd] = 0;
  pthread_mutex_unlock(&lock);
  if (!fails) return next(fd);
  ssize_t (*put)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
  char *lost = calloc(1, (size_t)(to - from) + 1);
  if (lost && put(fd, lost, (size_t)(to - from), from) < 0) perror("cannot drop what was written");
  free(lost);
  fprintf(stderr, "faulty disk: dropped %ld bytes\n", (long)(to - from));
  errno = EIO;
  return -1;
}

int fdatasync(int fd) { return sync_file(fd, "fdatasync"); }

int fsync(int fd) { return sync_file(fd, "fsync"); }
