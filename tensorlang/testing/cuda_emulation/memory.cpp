// Arrays between pages that nobody may touch, and shared memory that begins as garbage in every block.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <vector>

#include "machine.h"

namespace emu {

namespace {

constexpr uint64_t PAGE = 4096, FENCE = 1 << 20, ALIGNMENT = 16;
constexpr uint32_t FIRST_SHARED = 1024, MOST_SHARED = 227 * 1024, ADDRESSES = 1 << 18;
constexpr unsigned char SLACK = 0xa5, GARBAGE = 0xff;  // as floats, garbage is NaN

struct Region {
  unsigned char *mapping, *pages, *begin, *end, *pages_end;
  uint64_t mapped;
  const char* name;
};

std::vector<Region> regions;
std::vector<Array> placed;
unsigned char *static_begin, *static_end;
Region dynamic;
uint32_t dynamic_address;
char broken[512];

// The memory ends at the page behind it, but for what `alignment` needs; `exactly`: not at a multiple of twice that.
Region make_region(uint64_t bytes, uint64_t alignment, bool exactly, const char* name) {
  uint64_t room = (bytes + 2 * alignment + PAGE) / PAGE * PAGE + PAGE;
  Region r;
  r.mapped = room + 2 * FENCE;
  r.mapping = static_cast<unsigned char*>(
      mmap(nullptr, r.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (r.mapping == MAP_FAILED) return r.mapping = nullptr, r;
  r.pages = r.mapping + FENCE, r.pages_end = r.pages + room;
  mprotect(r.pages, room, PROT_READ | PROT_WRITE);
  uintptr_t begin = (reinterpret_cast<uintptr_t>(r.pages_end) - bytes) / alignment * alignment;
  if (exactly && begin / alignment % 2 == 0) begin -= alignment;
  r.begin = reinterpret_cast<unsigned char*>(begin), r.end = r.begin + bytes;
  r.name = name;
  memset(r.pages, SLACK, r.begin - r.pages);
  memset(r.end, SLACK, r.pages_end - r.end);
  return r;
}

const char* check_slack(const Region& r) {
  for (unsigned char* p = r.begin; p-- > r.pages;)
    if (*p != SLACK) {
      snprintf(broken, sizeof broken, "%s was written %td bytes before its first byte", r.name, r.begin - p);
      return broken;
    }
  for (unsigned char* p = r.end; p < r.pages_end; ++p)
    if (*p != SLACK) {
      snprintf(broken, sizeof broken, "%s was written at byte %td; it has %td", r.name, p - r.begin, r.end - r.begin);
      return broken;
    }
  return nullptr;
}

uint64_t static_offset() { return reinterpret_cast<uintptr_t>(static_begin) % 1024; }

}  // namespace

void static_shared(unsigned char* begin, unsigned char* end) { static_begin = begin, static_end = end; }

unsigned char* dynamic_shared() { return dynamic.begin; }

const char* place_memory(const Settings& settings, Array* arrays, int count, Value* values, int value_count) {
  regions.clear(), placed.clear();
  for (int i = 0; i < count; ++i) {
    Region r = make_region(arrays[i].bytes, ALIGNMENT, false, arrays[i].name);
    if (!r.mapping) return "not enough memory for the arrays";
    memcpy(r.begin, arrays[i].host, arrays[i].bytes);
    arrays[i].device = r.begin;
    regions.push_back(r), placed.push_back(arrays[i]);
  }
  for (int i = 0; i < value_count; ++i)
    if (values[i].kind == TENSOR_MAP || values[i].kind == POINTER)
      values[i].map.base = static_cast<unsigned char*>(arrays[values[i].array].device);
  uint64_t bytes = settings.dynamic_bytes + (static_end - static_begin);
  if (bytes > MOST_SHARED) {
    snprintf(broken, sizeof broken, "a block needs %lu bytes of shared memory; the most of any GPU is %u", bytes,
             MOST_SHARED);
    return broken;
  }
  dynamic = make_region(settings.dynamic_bytes, settings.dynamic_alignment, settings.dynamic_alignment < 1024,
                        "dynamic shared memory");
  regions.push_back(dynamic);
  uint64_t used = FIRST_SHARED + static_offset() + (static_end - static_begin);
  dynamic_address = (used + 1023) / 1024 * 1024 + reinterpret_cast<uintptr_t>(dynamic.begin) % 1024;
  return nullptr;
}

const char* release_memory(bool copies_back) {
  const char* wrong = nullptr;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (copies_back && !wrong) wrong = check_slack(regions[i]);
    if (copies_back && i < placed.size()) memcpy(placed[i].host, regions[i].begin, placed[i].bytes);
    munmap(regions[i].mapping, regions[i].mapped);
  }
  regions.clear();
  return wrong;
}

void begin_block_memory() {
  memset(static_begin, GARBAGE, static_end - static_begin);
  memset(dynamic.begin, GARBAGE, dynamic.end - dynamic.begin);
  forget_products();
}

void describe_fault(int signal, const void* address, char* text, size_t room) {
  const unsigned char* at = static_cast<const unsigned char*>(address);
  char where[200];
  snprintf(where, sizeof where, "thread (%u, %u, %u) of block (%u, %u, %u)", current->thread.x, current->thread.y,
           current->thread.z, current->block.x, current->block.y, current->block.z);
  for (const Region& r : regions)
    if (at >= r.mapping && at < r.mapping + r.mapped) {
      snprintf(text, room, "%s touches byte %td of %s, which has %td", where, at - r.begin, r.name, r.end - r.begin);
      return;
    }
  if (signal == SIGFPE)
    snprintf(text, room, "%s divides an integer by zero", where);
  else
    snprintf(text, room, "%s touches memory at %p, in no array, or overflows its stack of 64 KB", where, address);
}

uint32_t shared_address(const void* pointer) {
  const unsigned char* p = static_cast<const unsigned char*>(pointer);
  if (p >= static_begin && p <= static_end) return FIRST_SHARED + static_offset() + (p - static_begin);
  if (p >= dynamic.pages && p <= dynamic.pages_end) return dynamic_address + (p - dynamic.begin);
  fail("a pointer that is not into shared memory is taken for one");
}

unsigned char* shared_pointer(uint64_t address, uint64_t bytes, uint64_t alignment, const char* what) {
  if (address % alignment) fail("%s at shared address %lu; it has to be a multiple of %lu", what, address, alignment);
  uint64_t first = FIRST_SHARED + static_offset(), size = static_end - static_begin;
  if (address >= first && address + bytes <= first + size) return static_begin + (address - first);
  size = dynamic.end - dynamic.begin;
  if (address >= dynamic_address && address + bytes <= dynamic_address + size && address + bytes <= ADDRESSES)
    return dynamic.begin + (address - dynamic_address);
  fail("%s of %lu bytes at shared address %lu, outside of the static %lu to %lu and of the dynamic %u to %lu", what,
       bytes, address, first, first + (static_end - static_begin), dynamic_address, dynamic_address + size);
}

void copy_async(uint64_t to, const void* from, unsigned bytes, unsigned read) {
  if (bytes != 4 && bytes != 8 && bytes != 16) fail("cp.async of %u bytes; it copies 4, 8 or 16", bytes);
  if (read > bytes) fail("cp.async reads %u of %u bytes", read, bytes);
  if (read && reinterpret_cast<uintptr_t>(from) % bytes)
    fail("cp.async of %u bytes from an address not aligned to them", bytes);
  unsigned char* place = shared_pointer(to, bytes, bytes, "cp.async");
  Copy copy{place, static_cast<const unsigned char*>(from), bytes, read, me().copy_groups};
  if (machine.late) {
    memset(place, GARBAGE, bytes);
    me().copies.push_back(copy);
  } else {
    memcpy(place, from, read);
    memset(place + read, 0, bytes - read);
  }
}

void copy_commit() { ++me().copy_groups; }

void copy_wait(unsigned pending, bool open_too) {
  Thread& self = me();
  size_t kept = 0;
  for (const Copy& c : self.copies) {
    if (!open_too && c.group + pending >= self.copy_groups) {
      self.copies[kept++] = c;
      continue;
    }
    memcpy(c.to, c.from, c.read);
    memset(c.to + c.read, 0, c.bytes - c.read);
  }
  self.copies.resize(kept);
}

}  // namespace emu
