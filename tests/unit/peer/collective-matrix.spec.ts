import { collectiveMatrixInMemory } from '../../support/collective-matrix-memory.ts'

// tests/all has the other sizes up to 9.
collectiveMatrixInMemory([1, 2, 3, 5])
