// Bulk copies of boxes of tensors, and the barriers in shared memory that count their bytes.
#include <string.h>

#include <algorithm>

#include "machine.h"

namespace emu {

namespace {

constexpr unsigned PHASE_MAGIC = 0xb47;
constexpr unsigned MOST_ARRIVALS = 4095;

struct Phase {
  uint64_t magic : 12, parity : 1, count : 12, missing : 12;
  int64_t bytes : 27;
};
static_assert(sizeof(Phase) == 8);

struct Spot {
  uint64_t* word;
  Phase phase;

  void keep() { memcpy(word, &phase, 8); }
};

Spot at(uint64_t* word) {
  Spot s;
  s.word = word;
  memcpy(&s.phase, word, 8);
  if (s.phase.magic != PHASE_MAGIC) fail("a barrier in shared memory is used before mbarrier.init, or written over");
  return s;
}

uint64_t* word_of(uint64_t address) { return reinterpret_cast<uint64_t*>(shared_pointer(address, 8, 8, "mbarrier")); }

void settle(Spot& spot) {
  if (spot.phase.missing == 0 && spot.phase.bytes == 0) {
    spot.phase.parity ^= 1;
    spot.phase.missing = spot.phase.count;
    for (Thread& t : machine.threads)
      if (t.phase_of == spot.word && t.parity != spot.phase.parity) t.phase_of = nullptr, wake(t);
  }
  spot.keep();
}

uint64_t box_bytes(const Map& map) {
  uint64_t bytes = map.item_bytes;
  for (unsigned k = 0; k < map.rank; ++k) bytes *= map.box[k];
  return bytes;
}

uint32_t swizzled(uint32_t address, unsigned mode) {
  unsigned mask = (1u << mode) - 1;  // 1, 2, 3: 32, 64, 128 bytes
  return address ^ (address >> 7 & mask) << 4;
}

void move(const Bulk& b) {
  const Map& map = b.map;
  uint64_t elements = box_bytes(map) / map.item_bytes;
  for (uint64_t e = 0; e < elements; ++e) {
    uint64_t rest = e, offset = 0;
    bool inside = true;
    for (unsigned k = 0; k < map.rank; ++k) {
      int64_t x = int64_t(b.at[k]) + int64_t(rest % map.box[k]);
      rest /= map.box[k];
      inside = inside && x >= 0 && x < int64_t(map.extent[k]);
      offset += x * map.stride[k];
    }
    uint32_t address = b.address + e * map.item_bytes;
    unsigned char* place = b.shared + int64_t(swizzled(address, map.swizzle)) - int64_t(b.address);
    if (!b.barrier && inside) memcpy(map.base + offset, place, map.item_bytes);
    if (b.barrier && inside) memcpy(place, map.base + offset, map.item_bytes);
    if (b.barrier && !inside) memset(place, 0, map.item_bytes);
  }
  if (b.barrier) {
    Spot spot = at(b.barrier);
    spot.phase.bytes -= box_bytes(map);
    settle(spot);
  }
}

Bulk bulk(uint64_t shared, const void* encoded, const int* where, int rank) {
  Bulk b;
  memcpy(&b.map, encoded, sizeof(Map));
  if (b.map.magic != MAP_MAGIC) fail("a bulk copy by what is not a tensor map of the emulation");
  if (int(b.map.rank) != rank) fail("a bulk copy of rank %d by a tensor map of rank %u", rank, b.map.rank);
  uint64_t alignment = b.map.swizzle ? 128u << b.map.swizzle : 128;
  b.shared = shared_pointer(shared, box_bytes(b.map), alignment, "a bulk copy");
  b.address = shared;
  std::copy(where, where + rank, b.at);
  b.barrier = nullptr;
  b.rank = me().rank, b.group = me().bulk_groups;
  return b;
}

}  // namespace

void bulk_load(uint64_t to, const void* map, const int* where, int rank, uint64_t barrier) {
  Bulk b = bulk(to, map, where, rank);
  b.barrier = word_of(barrier);
  at(b.barrier);
  if (!machine.late) return move(b);
  memset(b.shared, 0xff, box_bytes(b.map));
  machine.bulk.push_back(b);
}

void bulk_store(const void* map, const int* where, int rank, uint64_t from) {
  Bulk b = bulk(from, map, where, rank);
  machine.late ? machine.bulk.push_back(b) : move(b);
}

void bulk_commit() { ++me().bulk_groups; }

void bulk_wait(unsigned pending) {
  Thread& self = me();
  size_t kept = 0;
  for (const Bulk& b : machine.bulk) {
    if (!b.barrier && b.rank == self.rank && b.group + pending < self.bulk_groups)
      move(b);
    else
      machine.bulk[kept++] = b;
  }
  machine.bulk.resize(kept);
}

bool complete_one() {
  std::vector<size_t> loads;
  for (size_t i = 0; i < machine.bulk.size(); ++i)
    if (machine.bulk[i].barrier) loads.push_back(i);
  if (loads.empty()) return false;
  size_t chosen = loads[draw(loads.size())];
  Bulk b = machine.bulk[chosen];
  machine.bulk.erase(machine.bulk.begin() + chosen);
  move(b);
  return true;
}

// Stores that nobody waited for still arrive.
void finish_block() {
  for (const Bulk& b : machine.bulk) {
    if (b.barrier) fail("a block ends while a bulk copy to its shared memory is under way");
    move(b);
  }
  machine.bulk.clear();
}

void mbarrier_init(uint64_t barrier, unsigned count) {
  if (count < 1 || count > MOST_ARRIVALS)
    fail("mbarrier.init for %u arrivals; 1 to %u are possible", count, MOST_ARRIVALS);
  Spot spot{word_of(barrier), {PHASE_MAGIC, 0, count, count, 0}};
  spot.keep();
}

void mbarrier_arrive(uint64_t barrier, unsigned count, unsigned bytes, bool arrives) {
  Spot spot = at(word_of(barrier));
  spot.phase.bytes += bytes;
  if (arrives) {
    if (count > spot.phase.missing)
      fail("more arrivals at a barrier in shared memory than the %u of its phase", unsigned(spot.phase.count));
    spot.phase.missing -= count;
    return settle(spot);
  }
  spot.keep();
}

void mbarrier_wait(uint64_t barrier, unsigned parity) {
  if (parity > 1) fail("mbarrier.try_wait.parity of %u; a parity is 0 or 1", parity);
  Spot spot = at(word_of(barrier));
  if (spot.phase.parity != parity) return;
  me().phase_of = spot.word, me().parity = parity;
  wait_here("mbarrier.try_wait", 0, barrier);
}

}  // namespace emu
