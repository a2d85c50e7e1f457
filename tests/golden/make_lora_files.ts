import { mkdirSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { runnerImport } from 'vite'

// Writes lora/ours with this library, for lora.py to read: npx tsx tests/golden/make_lora_files.ts
const { module } = await runnerImport<typeof import('../support/golden-lora.ts')>(
  resolve(import.meta.dirname, '../support/golden-lora.ts'),
)
const folder = resolve(import.meta.dirname, 'lora/ours')
mkdirSync(folder, { recursive: true })
for (const [name, bytes] of Object.entries(await module.makeLoraFiles()))
  writeFileSync(resolve(folder, name), bytes)
