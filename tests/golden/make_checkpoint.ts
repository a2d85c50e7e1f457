import { writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { runnerImport } from 'vite'

// Writes checkpoint.safetensors with this library, for checkpoint.py to read: npx tsx tests/golden/make_checkpoint.ts
const { module } = await runnerImport<typeof import('../support/golden-checkpoint.ts')>(
  resolve(import.meta.dirname, '../support/golden-checkpoint.ts'),
)
writeFileSync(
  resolve(import.meta.dirname, 'checkpoint.safetensors'),
  await module.makeGoldenCheckpoint(),
)
