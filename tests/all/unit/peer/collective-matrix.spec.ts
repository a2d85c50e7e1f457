import { collectiveMatrixInMemory } from '../../../support/collective-matrix-memory.ts'

// tests/unit has the other sizes.
collectiveMatrixInMemory([4, 6, 7, 8, 9])
