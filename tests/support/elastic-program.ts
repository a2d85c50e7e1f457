import { linesOf, useDebuggedLauncher } from './debugged-launcher.ts'
import type { Run } from './launcher-process.ts'

/**
 * Trains 12 steps and commits every third. All ranks have the same samples, so that the bits are those of any number of ranks that is a power of
 * two. Arguments: `wait=GROUP/RANK/STEP`, where a rank stops, to be killed; `throw=…`, where it throws; `hold=STEP/SIZE`, where a group of
 * fewer ranks commits again and again until a larger one follows it; `loose`: two runs are under way at once.
 */
const program = `
import { compile, manualSeed, tensorType } from 'tabring'
import { saveModel } from 'tabring/checkpoint'
import { args, env, runElastic } from 'tabring/distributed'
import { Linear, ReLU, Sequential } from 'tabring/nn'
import { mseLoss } from 'tabring/nn/functional'
import { DistributedDataParallel } from 'tabring/nn/parallel'
import { AdamW } from 'tabring/optim'

const has = (what: string, step: number) => args.includes(what + '=' + env.RESTART_COUNT + '/' + env.RANK + '/' + step)
const numbers = (seed: number) => Float32Array.from({ length: 64 }, (_, i) => Math.sin(seed + i * 0.37))

await runElastic(async ({ restore, commit }) => {
  document.title = 'rank ' + env.RANK + ' of ' + env.WORLD_SIZE
  manualSeed(7)
  const net = new Sequential(new Linear(8, 32), new ReLU(), new Linear(32, 8))
  const model = new DistributedDataParallel(net)
  const optimizer = new AdamW(model.parameters(), { lr: 0.01 })
  const restored = await restore<{ step: number }>({ model, optimizer })
  let { step = 0 } = restored ?? {}
  console.log('group ' + env.RESTART_COUNT + ' of ' + env.WORLD_SIZE + ' from ' + step)
  const train = await compile(
    ({ x, y }) => {
      const loss = mseLoss(model.forward(x), y)
      optimizer.zeroGrad()
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: tensorType([8, 8]), y: tensorType([8, 8]) },
  )
  while (step < 12) {
    const held = args.find((one) => one.startsWith('hold=' + step + '/'))
    while (held && Number(env.WORLD_SIZE) < Number(held.split('/')[1])) await commit({ model, optimizer, step })
    const first = train.run({ x: numbers(step), y: numbers(step + 0.5) })
    if (args.includes('loose')) await train.run({ x: numbers(step), y: numbers(step + 0.5) })
    await first
    step++
    if (has('wait', step)) {
      console.log('waits at ' + step)
      await new Promise(() => undefined)
    }
    if (has('throw', step)) throw new RangeError('no batch')
    if (step % 3 === 0) await commit({ model, optimizer, step })
  }
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', await saveModel(net)))
  console.log('ends with ' + Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join(''))
})
`

/** Gives a spec a folder with the program as train.ts. */
export const useElasticProgram = (): void => useDebuggedLauncher({ 'train.ts': program })

/** By rank, the hash of the parameters with which it ends. */
export const endsOf = (run: Run) => linesOf(run, /^\[(\d)\]: ends with (.*)$/gm)
/** By rank, the groups in which it trained, and the step from which. */
export const groupsOf = (run: Run) => linesOf(run, /^\[(\d)\]: (group .*)$/gm)
