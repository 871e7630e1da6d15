# The doors to MPI: build/libwane_mpi-<kind>.so for each kind whose compiler is here. Without mpicc nothing is built, and
# libwane.so needs none of it.
MPI_COMPILERS := mpicc.openmpi mpicc.mpich mpicc
MPI_FLAGS := -std=c11 -D_GNU_SOURCE -O2 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -shared

# Prints the kind of MPI that a compiler is of: openmpi, mpich; nothing for another one.
mpi_kind = printf '\#include <mpi.h>\n\#ifdef OPEN_MPI\nkind openmpi\n\#elif defined MPICH_VERSION\nkind mpich\n\#endif\n' | \
           $(1) -E -P -x c - | sed -n 's/^kind //p'

.PHONY: mpi
mpi: all
	$(Q)made=''; for cc in $(MPI_COMPILERS); do command -v $$cc >/dev/null 2>&1 || continue; \
	  kind=$$($(call mpi_kind,$$cc)); case " $$made " in *" $$kind "*) continue ;; esac; [ -n "$$kind" ] || continue; \
	  made="$$made $$kind"; out=build/libwane_mpi-$$kind.so; [ $$out -nt runtime/link/mpi/door.c ] && \
	  [ $$out -nt runtime/link/mpi/door.h ] && continue; echo "  MPI   $$out"; \
	  $$cc $(MPI_FLAGS) -o $$out.new runtime/link/mpi/door.c && mv -f $$out.new $$out || exit 1; done; \
	  [ -n "$$made" ] || echo 'make mpi: no mpicc is here: install libopenmpi-dev or libmpich-dev'
