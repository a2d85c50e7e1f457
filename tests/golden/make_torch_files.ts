import { readFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { runnerImport } from 'vite'

// Writes tabring-tensors.pt, tabring-values.pt and tabring-run.pt with this library, for torch_files.py to read: npx tsx tests/golden/make_torch_files.ts
const file = (name: string) => resolve(import.meta.dirname, 'torch-files', name)
const { module } = await runnerImport<typeof import('../support/library.ts')>(
  resolve(import.meta.dirname, '../support/library.ts'),
)
for (const [from, to] of [
  ['tensors.pt', 'tabring-tensors.pt'],
  ['values-2.pt', 'tabring-values.pt'],
])
  writeFileSync(
    file(to!),
    module.writeTorch(await module.readTorch(new Uint8Array(readFileSync(file(from!))))),
  )

const model = new module.Sequential(new module.Linear(2, 1), new module.BatchNorm1d(1))
const optimizer = new module.AdamW(model.parameters(), { lr: 0.5 })
const scheduler = new module.lrScheduler.StepLR(optimizer, 2)
// A step would need modules that Vite imports later; loaded states are saved as they are.
const { param_groups } = await optimizer.stateDict()
const moment = { shape: [1, 2], data: Float32Array.of(0.5, 0.25) }
optimizer.loadStateDict({
  state: { 0: { step: 1, exp_avg: moment, exp_avg_sq: moment } },
  param_groups,
})
scheduler.step()
writeFileSync(
  file('tabring-run.pt'),
  module.writeTorch({
    epoch: 3,
    state_dict: await model.stateDict(),
    optimizer: await optimizer.stateDict(),
    scheduler: scheduler.stateDict(),
  }),
)
