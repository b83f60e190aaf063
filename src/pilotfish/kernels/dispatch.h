// Which instruction set to use on this machine.
#pragma once
#include <string>
#include <vector>

#include "kernels.h"

namespace pilotfish {

std::vector<std::string> available_isas();           // best first; "portable" always last
const Kernels* kernels_for(const std::string& isa);  // null if this machine or build lacks it

}  // namespace pilotfish
