import { deathTests } from '../../support/deaths.ts'

// As many seconds as a busy machine may take; tests/all/timing/death.spec.ts has the bounds.
deathTests(['closed', 'crashed or frozen'], 10_000)
