// What the parts of the machine share: the threads of the block that runs, and their memory.
#pragma once
#include <vector>

#include "runtime.h"

namespace emu {

struct Copy {
  unsigned char* to;
  const unsigned char* from;
  unsigned bytes, read;
  unsigned group;
};

// A box on its way; `barrier` is null for a store.
struct Bulk {
  unsigned char* shared;
  uint32_t address;
  Map map;
  int at[5];
  uint64_t* barrier;
  unsigned rank, group;
};

struct Thread : Place {
  bool done = false;
  const char* waits = "";  // for what, and where
  int line = 0, address = -1;
  int barrier = -1;
  uint64_t* phase_of = nullptr;
  unsigned parity = 0;
  std::vector<Copy> copies;
  unsigned copy_groups = 0, bulk_groups = 0;  // closed so far
};

struct Machine {
  uint3 block;
  bool late;
  std::vector<Thread> threads;
  std::vector<Bulk> bulk;
};
extern Machine machine;

inline Thread& me() { return *static_cast<Thread*>(current); }

void wait_here(const char* what, int line, int address);
void wake(Thread&);
unsigned draw(unsigned below);

const char* place_memory(const Settings&, Array*, int arrays, Value*, int values);
const char* release_memory(bool copies_back);
void begin_block_memory();
void finish_block();
bool complete_one();  // a copy that only its barrier waits for; false when there is none
void describe_fault(int signal, const void* address, char* text, size_t room);
void forget_products();

}  // namespace emu
