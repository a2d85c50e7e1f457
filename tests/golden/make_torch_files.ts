import { readFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { runnerImport } from 'vite'

// Writes tabring-tensors.pt and tabring-values.pt with this library, for torch_files.py to read: npx tsx tests/golden/make_torch_files.ts
const file = (name: string) => resolve(import.meta.dirname, 'torch-files', name)
const { module } = await runnerImport<typeof import('../../src/index.ts')>(
  resolve(import.meta.dirname, '../../src/index.ts'),
)
for (const [from, to] of [
  ['tensors.pt', 'tabring-tensors.pt'],
  ['values-2.pt', 'tabring-values.pt'],
])
  writeFileSync(
    file(to!),
    module.writeTorch(await module.readTorch(new Uint8Array(readFileSync(file(from!))))),
  )
