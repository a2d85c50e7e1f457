import { createServer } from 'vite'
import { writeFileSync } from 'node:fs'
const vite = await createServer({ root: process.cwd(), server: { middlewareMode: true, hmr: false }, optimizeDeps: { noDiscovery: true }, logLevel: 'error' })
const load = (f) => vite.ssrLoadModule(f)
const { WasmDevice } = await load('/src/gpu/wasm/device.ts')
const t = await load('/bench/compute/tabring.ts')
const { weightsOf, batchOf } = await load('/bench/compute/given.ts')
const { setNumThreads } = await load('/src/gpu/num-threads.ts')
setNumThreads(1)
const out = {}
let texts = []
const made = WasmDevice.prototype.createComputePipelineAsync
WasmDevice.prototype.createComputePipelineAsync = function (d) { texts.push([d.label, d.compute.module.code]); return made.call(this, d) }
for (const name of ['mlp', 'cnn', 'gpt']) {
  texts = []
  const trainer = await t.tabringTrainer(name, weightsOf(name), 'cpu')
  await trainer.step(batchOf(name, 0))
  out[name] = texts
  console.log(name, texts.length)
}
writeFileSync('/tmp/cpu2-kernels.json', JSON.stringify(out))
await vite.close()
process.exit(0)
