import * as Comlink from 'comlink'
import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { startWorker } from '../../../demos/start-worker.ts'
import { PortLink } from '../../../src/peer/link/port.ts'
import type { ComputeApi } from '../../../src/worker/api.ts'
import { startCompute } from '../../../src/worker/page/client.ts'

const membership = { epoch: 1, rank: 0, worldSize: 1 }
const endless = { epochs: 1000, bucketCapMb: 25 } as const

/** A worker in the middle of a run. */
async function training() {
  const client = startCompute(startWorker)
  let sawStep!: () => void
  const stepped = new Promise<void>((resolve) => {
    sawStep = resolve
  })
  const run = client.api.train(membership, parseTrainConfig(endless), location.href, (events) => {
    if (events.some(({ event }) => event.event === 'step')) sawStep()
  })
  await Promise.race([stepped, run])
  return { client, run }
}

test('a terminated worker rejects every pending call, and later ones', async () => {
  const { client, run } = await training()
  const pending = [run, client.api.leave(), client.dead]
  client.terminate()
  for (const call of [...pending, client.api.open('webgpu')]) {
    await expect(call).rejects.toMatchObject({ code: 'worker.dead' })
  }
})

test('links of a run that does not begin are closed, those of others are not', async () => {
  const client = startCompute(startWorker)
  const ends: number[] = []
  const given = async (epoch: number) => {
    const { port1, port2 } = new MessageChannel()
    await client.api.addLink(epoch, 1, { kind: 'port', port: port1 })
    const far = new PortLink(port2)
    const ended = new Promise<void>((resolve) => {
      far.onend = () => {
        ends.push(epoch)
        resolve()
      }
    })
    return ended
  }
  const links = [7, 8, 8].map(given)
  await client.api.dropLinks(7)
  // The newest for a rank counts, and has taken the other one's place.
  await Promise.all(links.slice(0, 2))
  expect(ends.sort()).toEqual([7, 8])
  client.terminate()
})

test('errors keep their code and text on the way out of the worker', async () => {
  const client = startCompute(startWorker)
  await expect(client.api.exportParameters()).rejects.toMatchObject({
    code: 'graph.misuse',
    message: expect.stringContaining('Train first'),
  })
  client.terminate()
})

test("measures its device's speed, unless a run is active or it computes on the CPU", async () => {
  const idle = startCompute(startWorker)
  await idle.api.open('webgpu')
  await idle.api.speed() // its code is loaded, its kernel compiled
  const beganMs = performance.now()
  const gflops = await idle.api.speed()
  console.log(
    `${gflops?.toFixed(1)} GFLOP/s, measured in ${(performance.now() - beganMs).toFixed()} ms`,
  )
  expect(gflops).toBeGreaterThan(0.01)
  expect(gflops).toBeLessThan(1e6)
  expect(await idle.api.roundTrips()).toEqual([])
  await idle.api.open('cpu')
  expect(await idle.api.speed()).toBeGreaterThan(0.01)
  idle.terminate()

  const { client, run } = await training()
  expect(await client.api.speed()).toBeNull()
  await client.api.abort('enough')
  await expect(run).rejects.toThrow('enough')
  client.terminate()
})

test('a run that starts during that measurement waits for its end', async () => {
  const client = startCompute(startWorker)
  await client.api.open('webgpu')
  const order: string[] = []
  const measuring = client.api.speed().then((gflops) => {
    order.push('speed')
    return gflops
  })
  const config = parseTrainConfig({ ...endless, steps: 1, batchSize: 16 })
  const run = client.api.train(membership, config, location.href, () => undefined)
  await Promise.all([measuring, run.then(() => order.push('run'))])
  expect(order).toEqual(['speed', 'run'])
  client.terminate()
})

test('abort ends a run with its reason', async () => {
  const { client, run } = await training()
  await client.api.abort('enough')
  await expect(run).rejects.toMatchObject({
    code: 'peer.aborted',
    message: expect.stringContaining('enough'),
  })
  client.terminate()
})

test('a second run may follow a first', async () => {
  const client = startCompute(startWorker)
  const config = parseTrainConfig({
    ...endless,
    steps: 2,
    batchSize: 16,
    optimizer: 'sgd',
    seed: 1,
  })
  const hashes = []
  for (let epoch = 1; epoch <= 2; epoch++) {
    const result = await client.api.train(
      { ...membership, epoch },
      config,
      location.href,
      () => undefined,
    )
    await client.api.leave()
    hashes.push(result.paramHash)
  }
  expect(hashes[0]).toBe(hashes[1])
  const file = await client.api.exportParameters()
  expect((await (await fetch(file)).arrayBuffer()).byteLength).toBeGreaterThan(4 * 203_530)
  URL.revokeObjectURL(file)
  client.terminate()
})

test('a run in a worker pauses, answers queries and continues; arrays are returned unchanged; it is released when asked', async () => {
  const client = startCompute(startWorker)
  await expect(client.api.query('boundary', { side: 4 })).rejects.toMatchObject({
    code: 'graph.misuse',
  })
  const log: string[] = []
  let pausedAt!: () => void
  const paused = new Promise<void>((resolve) => {
    pausedAt = resolve
  })
  const run = client.api.train(
    membership,
    parseTrainConfig({ demo: 'playground', data: 'given', steps: 40, batchSize: 16 }),
    location.href,
    (events) => {
      for (const { event } of events) {
        // Steps come in batches; the first is sent at once.
        if (event.event === 'step' && event.step === 1) client.api.pause()
        if (event.event === 'paused') pausedAt()
        if (event.event === 'paused' || event.event === 'continued') log.push(event.event)
      }
    },
    {},
    new Uint8Array(
      Float32Array.from({ length: 60 }, (_, i) => (i % 3 === 2 ? i % 2 : Math.sin(i))).buffer,
    ),
  )
  await Promise.race([paused, run])
  const [grid, points] = await Promise.all([
    client.api.query('boundary', { side: 4 }),
    client.api.query('points'),
  ])
  expect(grid.probabilities).toBeInstanceOf(Float32Array)
  expect(points.train).toHaveLength(32)
  expect(points.step).toBe(grid.step)
  expect(log).toEqual(['paused'])
  await client.api.forget() // nothing to forget while it is needed
  await client.api.goOn()
  expect((await run).steps).toBe(40)
  expect(log).toEqual(['paused', 'continued'])
  // The answer before was handed over; the run has its points still.
  expect(await client.api.query('points')).toEqual({ ...points, step: 40 })
  await client.api.forget()
  for (const gone of [client.api.query('points'), client.api.exportParameters()])
    await expect(gone).rejects.toMatchObject({ code: 'graph.misuse' })
  client.terminate()
})

test('an abort does not wait for the compiler, and the next run does', async () => {
  const client = startCompute(startWorker)
  const config = parseTrainConfig(endless)
  const phases: string[] = []
  let compiling!: () => void
  const compiles = new Promise<void>((resolve) => {
    compiling = resolve
  })
  const first = client.api.train(membership, config, location.href, (events) => {
    for (const { event } of events) {
      if (event.event !== 'phase') continue
      phases.push(event.phase)
      if (event.phase === 'compile') compiling()
    }
  })
  await compiles
  await client.api.abort('changed my mind')
  await expect(first).rejects.toMatchObject({ code: 'peer.aborted' })
  const next = { ...membership, epoch: 2 }
  const second = await client.api.train(
    next,
    { ...config, steps: 2 },
    location.href,
    () => undefined,
  )
  expect(second.steps).toBe(2)
  expect(phases).toEqual(['load', 'broadcast', 'compile'])
  client.terminate()
})

test('a run that continued on another adapter reports it', async () => {
  const name = 'changing adapter'
  const address = new URL('../../support/changing-adapter.worker.ts', import.meta.url)
  const worker = new Worker(address, { type: 'module', name })
  const api = Comlink.wrap<ComputeApi>(worker)
  const losing = new BroadcastChannel(name)
  const first = await api.open('webgpu')
  const result = await api.train(
    membership,
    parseTrainConfig({ steps: 200, batchSize: 4 }),
    location.href,
    Comlink.proxy((events) => {
      if (events.some(({ event }) => event.event === 'step' && event.step === 3))
        losing.postMessage('now')
    }),
  )
  losing.close()
  worker.terminate()
  expect(result.lostDevices).toBe(1)
  expect(first.vendor).not.toBe('another')
  expect(result.adapter).toEqual({ ...first, vendor: 'another' })
  expect(result.record.adapters).toEqual([`another ${first.architecture}`])
})
