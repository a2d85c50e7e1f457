import { defineConfig } from 'vitest/config'

/** `npm run test:net`: several machines, as network namespaces; Linux and root alone. `npm test` leaves it out. */
export default defineConfig({
  test: {
    name: 'net',
    environment: 'node',
    include: ['tests/net/**/*.spec.ts'],
    testTimeout: 120_000,
    hookTimeout: 30_000,
    // Each has networks of its own.
    maxWorkers: 2,
  },
})
