import { deathTests } from '../../support/deaths.ts'

// tests/e2e/death.spec.ts has tabs that are closed.
deathTests(['crashed or frozen'])
