import { availableParallelism } from 'node:os'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterEach, expect, test, vi } from 'vitest'
import { type AdapterFacts, Gpu } from '../../../src/gpu/device.ts'
import { getNumThreads, setNumThreads } from '../../../src/gpu/num-threads.ts'
import { PipelineCache } from '../../../src/gpu/pipeline.ts'
import { download } from '../../../src/gpu/readback.ts'
import { StagedUploads } from '../../../src/gpu/staging.ts'
import { bufferUsage, mapMode } from '../../../src/gpu/usage.ts'
import { WasmDevice } from '../../../src/gpu/wasm/device.ts'
import { WasmHeap } from '../../../src/gpu/wasm/heap.ts'
import { openWasm } from '../../../src/gpu/wasm/open.ts'
import { type CompileKernel, WasmPipeline } from '../../../src/gpu/wasm/pipeline.ts'
import { startThread } from '../../../src/gpu/wasm/start-thread.ts'
import { controlLayout, type ThreadStart } from '../../../src/gpu/wasm/thread.ts'
import { Threads } from '../../../src/gpu/wasm/threads.ts'
import { setSwitches } from '../../../src/util/switches.ts'

const storage = bufferUsage.STORAGE | bufferUsage.COPY_SRC | bufferUsage.COPY_DST

/** A section of a WebAssembly module. */
const section = (id: number, ...bytes: number[]) => [id, bytes.length, ...bytes]

/**
 * Stands in for the compiler: of `add <n>`, a kernel that adds n to word i in workgroup i; of `slow`, one that takes some 50 µs a group
 * before it adds 1; of `scratch`, one as slow that adds the address of its scratch memory; of `trap`, one that fails; of `endless 0`, one that
 * adds nothing, as slow in the thread whose scratch memory is at the address in word 0, and without an end in the others.
 */
function compile(wgsl: string, { isShared }: { isShared: boolean }) {
  const [text, number = 1] = wgsl.split(' ')
  const add = [
    // Until first reaches first + count: words[first] += n.
    ...[0x20, 0, 0x20, 1, 0x6a, 0x21, 1, 0x02, 0x40, 0x03, 0x40, 0x20, 0, 0x20, 1, 0x4f, 0x0d, 1],
    ...(text !== 'add'
      ? [
          0x41, 0x80, 0xc0, 0x02, 0x21, 3, 0x03, 0x40, 0x20, 3, 0x41, 1, 0x6b, 0x22, 3, 0x0d, 0,
          0x0b,
        ]
      : []),
    ...[0x20, 5, 0x20, 0, 0x41, 2, 0x74, 0x6a, 0x22, 2, 0x20, 2, 0x28, 2, 0],
    ...(text === 'scratch' ? [0x20, 4] : [0x41, Number(number)]),
    ...[0x6a, 0x36, 2, 0],
    ...[0x20, 0, 0x41, 1, 0x6a, 0x21, 0, 0x0c, 0, 0x0b, 0x0b],
  ]
  // If scratch != words[0]: a loop that jumps to its begin.
  const loop = [0x20, 4, 0x20, 5, 0x28, 2, 0, 0x47, 0x04, 0x40, 0x03, 0x40, 0x0c, 0, 0x0b, 0x0b]
  const work = text === 'endless' ? [...loop, ...add] : add
  const body = [0, ...(text === 'trap' ? [0x00] : work), 0x0b]
  const limits = isShared ? [3, 1, 0x80, 0x80, 4] : [0, 1]
  const code = Uint8Array.of(
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, 1, 0x60, 6, ...new Array(6).fill(0x7f), 0),
    ...section(2, 1, 4, ...Buffer.from('host'), 6, ...Buffer.from('memory'), 2, ...limits),
    ...section(3, 1, 0),
    ...section(7, 1, 3, ...Buffer.from('run'), 0, 0),
    ...section(10, 1, body.length, ...body),
  )
  return { code, bindings: [0], scratchBytes: 64 }
}

const opened: Gpu[] = []

async function open(threads = 1): Promise<Gpu> {
  setNumThreads(threads)
  const gpu = await openWasm(compile)
  opened.push(gpu)
  return gpu
}

/** A device with 4 MiB of memory. */
function openSmall(heap = new WasmHeap(64)): Gpu {
  const device = new WasmDevice(heap, compile)
  const gpu = new Gpu(device as unknown as GPUDevice, {} as AdapterFacts, { type: 'cpu', index: 0 })
  opened.push(gpu)
  return gpu
}

afterEach(() => {
  vi.restoreAllMocks()
  for (const gpu of opened.splice(0)) gpu.close()
})

/** Returns what records a kernel's dispatch over a buffer. */
async function kernel(gpu: Gpu, text: string) {
  const { pipeline, layout } = await new PipelineCache(gpu).get({
    label: text,
    wgsl: text,
    bindings: [{ access: 'update' }],
  })
  return (encoder: GPUCommandEncoder, buffer: GPUBuffer, groups: number) => {
    const entries = [{ binding: 0, resource: { buffer } }]
    const pass = encoder.beginComputePass()
    pass.setPipeline(pipeline)
    pass.setBindGroup(0, gpu.device.createBindGroup({ layout, entries }))
    pass.dispatchWorkgroups(groups)
    pass.end()
  }
}

const words = async (gpu: Gpu, buffer: GPUBuffer) => [
  ...new Uint32Array(await download(gpu, buffer, 0, buffer.size)),
]

test('writes, kernels, copies and clears take place in the order of their submits', async () => {
  const gpu = await open()
  const add = await kernel(gpu, 'add 1')
  const buffer = gpu.createBuffer('numbers', 16, storage)
  const copy = gpu.createBuffer('copy', 16, storage)
  expect(await words(gpu, buffer)).toEqual([0, 0, 0, 0])
  gpu.write(buffer, Uint32Array.of(1, 2, 3, 4))
  const encoder = gpu.device.createCommandEncoder()
  add(encoder, buffer, 3)
  encoder.copyBufferToBuffer(buffer, 4, copy, 0, 12)
  add(encoder, buffer, 4)
  gpu.submit(encoder)
  const given = Uint32Array.of(50)
  gpu.write(copy, given, 12)
  // The queue has taken it.
  given[0] = 0
  const after = gpu.device.createCommandEncoder()
  after.clearBuffer(buffer, 0, 4)
  gpu.submit(after)
  expect(await words(gpu, copy)).toEqual([3, 4, 4, 50])
  expect(await words(gpu, buffer)).toEqual([0, 4, 5, 5])
})

test('staged uploads arrive, and their memory is used again when the device has read it', async () => {
  const gpu = await open()
  const uploads = new StagedUploads(gpu)
  const input = gpu.createBuffer('input', 8, storage)
  for (const numbers of [Float32Array.of(1, 2), Float32Array.of(3, 4), Float32Array.of(5, 6)]) {
    const { x } = await uploads.pin({ x: { shape: [2], data: numbers } })
    const encoder = gpu.device.createCommandEncoder()
    x.record(encoder, input)
    gpu.submit(encoder)
    x.release()
    expect(new Float32Array(await download(gpu, input, 0, 8))).toEqual(numbers)
  }
  expect(gpu.counters.buffers).toBe(1 + 3 + 1)
  uploads.destroy()
})

test('other tasks get turns while a kernel runs, and who waits for it comes last', async () => {
  const gpu = await open()
  const slow = await kernel(gpu, 'slow')
  const buffer = gpu.createBuffer('numbers', 4 * 4000, storage)
  const encoder = gpu.device.createCommandEncoder()
  slow(encoder, buffer, 4000)
  const began = performance.now()
  gpu.submit(encoder)
  expect(performance.now() - began).toBeLessThan(50)
  let turns = 0
  const turn = setInterval(() => turns++, 1)
  await gpu.wait(gpu.queue.onSubmittedWorkDone())
  clearInterval(turn)
  expect(turns).toBeGreaterThan(5)
  expect((await words(gpu, buffer)).every((word) => word === 1)).toBe(true)
})

test.each([
  [1, 1],
  [2, 2],
  [1, 4],
])('%i threads, then %i, take all workgroups of a dispatch, each once', async (begin, threads) => {
  const warn = vi.spyOn(console, 'warn').mockReturnValue()
  const gpu = await open(begin)
  const count = 4000
  const [slow, scratch] = [await kernel(gpu, 'slow'), await kernel(gpu, 'scratch')]
  expect(getNumThreads()).toBe(begin)
  setNumThreads(threads)
  expect(getNumThreads()).toBe(threads)
  const cores = availableParallelism()
  const excess = ` on ${cores} core${cores === 1 ? '' : 's'}, which is slower`
  const on = threads > cores ? excess : ''
  const text = `${threads} thread${threads === 1 ? '' : 's'}${on}`
  expect(gpu.facts.description).toBe(`CPU in WebAssembly, ${text}`)
  if (on) expect(warn).toHaveBeenLastCalledWith(`tabring: the device cpu computes on ${text}.`)
  const [sums, users] = [0, 1].map((n) => gpu.createBuffer(`numbers ${n}`, 4 * count, storage))
  const encoder = gpu.device.createCommandEncoder()
  for (let i = 0; i < 3; i++) slow(encoder, sums, count)
  gpu.submit(encoder)
  expect(new Set(await words(gpu, sums))).toEqual(new Set([3]))
  // A thread that comes late to one takes part in another.
  const found = new Set<number>()
  let before: ArrayLike<number> = new Uint32Array(count)
  for (let i = 0; i < 1000 && found.size < threads; i++) {
    const again = gpu.device.createCommandEncoder()
    scratch(again, users, count)
    gpu.submit(again)
    const after = await words(gpu, users)
    for (let at = 0; at < count; at++) found.add((after[at] - before[at]) >>> 0)
    before = after
  }
  expect(found.size).toBe(threads)
  gpu.close()
  setNumThreads(1)
  expect(getNumThreads()).toBe(1)
})

test('parts of a dispatch double up to a millisecond where other threads compute most of them', () => {
  const compiled = { code: new Uint8Array(), bindings: [], scratchBytes: 0 }
  const pipeline = new WasmPipeline('a kernel', () => undefined, compiled)
  const parts = Array.from({ length: 8 }, () => {
    const part = pipeline.part(8)
    // Of it, one workgroup on this thread.
    pipeline.measured(1, 0.1)
    return part
  })
  expect(parts).toEqual([1, 1, 2, 4, 8, 16, 32, 64])
  expect([pipeline.part(8), pipeline.part(1)]).toEqual([80, 10])
})

/** A thread that computes nothing. `onTask`: it is woken and there is a task. Returns how often it was woken. */
function stubThread(
  onTask = (_words: Int32Array, _open: number): void => undefined,
  loads = true,
  sleepsAgain = true,
) {
  let woken = () => 0
  class Idle extends EventTarget {
    postMessage({ memory, address, bell, layout }: ThreadStart) {
      const words = new Int32Array(memory.buffer, address)
      words[bell + layout.begun] = 1
      words[bell + layout.sleeps] = 1
      woken = () => words[bell]
      vi.spyOn(Atomics, 'notify').mockImplementation(() => {
        // Who wakes it says so, and it sleeps again.
        if (sleepsAgain) words[bell + layout.sleeps] = 1
        if (loads) words[bell + layout.load] = 0
        if (words[layout.open] > 0) onTask(words, layout.open)
        return 1
      })
    }
    readonly terminate = () => undefined
  }
  vi.stubGlobal('Worker', Idle)
  return () => woken()
}

test.each([
  ['has not begun it', true],
  ['still loads its kernel', false],
])('a dispatch does not wait for a thread that %s', async (_, loads) => {
  const wakes = stubThread(undefined, loads)
  const wait = vi.spyOn(Atomics, 'wait')
  try {
    const gpu = await open(2)
    wait.mockClear()
    const slow = await kernel(gpu, 'slow')
    const buffer = gpu.createBuffer('numbers', 4 * 4000, storage)
    const encoder = gpu.device.createCommandEncoder()
    slow(encoder, buffer, 4000)
    gpu.submit(encoder)
    expect(new Set(await words(gpu, buffer))).toEqual(new Set([1]))
    expect(wait).not.toHaveBeenCalled()
    expect(wakes() > 1).toBe(loads)
  } finally {
    vi.unstubAllGlobals()
  }
})

test('a thread that is about to wake up is not woken again', async () => {
  const wakes = stubThread(undefined, true, false)
  try {
    const gpu = await open(2)
    const slow = await kernel(gpu, 'slow')
    const buffer = gpu.createBuffer('numbers', 4 * 4000, storage)
    const encoder = gpu.device.createCommandEncoder()
    slow(encoder, buffer, 4000)
    gpu.submit(encoder)
    await words(gpu, buffer)
    expect(wakes()).toBeGreaterThan(1)
    expect(Atomics.notify).toHaveBeenCalledTimes(1)
  } finally {
    vi.unstubAllGlobals()
  }
})

test('short runs in a row leave turns to other tasks too', async () => {
  const gpu = await open()
  const add = await kernel(gpu, 'add 1')
  const buffer = gpu.createBuffer('numbers', 4, storage)
  let isOver = false
  setTimeout(() => {
    isOver = true
  }, 20)
  let runs = 0
  for (; !isOver && runs < 1e6; runs++) {
    const encoder = gpu.device.createCommandEncoder()
    add(encoder, buffer, 1)
    gpu.submit(encoder)
    await gpu.wait(gpu.queue.onSubmittedWorkDone())
  }
  expect(isOver).toBe(true)
  expect(await words(gpu, buffer)).toEqual([runs])
})

test('a device whose threads have no file computes without them, and names the file', async () => {
  class Failing extends EventTarget {
    constructor() {
      super()
      queueMicrotask(() => this.dispatchEvent(new Event('error')))
    }
    readonly postMessage = () => undefined
    readonly terminate = () => undefined
  }
  vi.stubGlobal('Worker', Failing)
  const warn = vi.spyOn(console, 'warn').mockReturnValue()
  try {
    const gpu = await open(3)
    const said = () => warn.mock.calls.filter(([text]) => !text.includes('slower'))
    await vi.waitFor(() =>
      expect(said()).toEqual([
        [
          expect.stringMatching(
            /^tabring: the device cpu computes on 1 of 3 threads: a worker ended \(its file .*thread\.worker\.ts.* could not be loaded; check that the server has it\)\.$/,
          ),
        ],
      ]),
    )
    // The server takes so much of it.
    expect(gpu.facts.description).toMatch(/^CPU in WebAssembly, 1 thread; a worker ended .{64}…$/)
  } finally {
    warn.mockRestore()
    vi.unstubAllGlobals()
  }
})

test('a kernel that fails in any of the threads is an error of the device', async () => {
  const gpu = await open(2)
  const fail = await kernel(gpu, 'add 1')
  const small = gpu.createBuffer('numbers', 4 * 400, storage)
  const encoder = gpu.device.createCommandEncoder()
  // The last of these are behind all memory.
  fail(encoder, small, 2 ** 20)
  gpu.submit(encoder)
  await expect(gpu.wait(gpu.queue.onSubmittedWorkDone())).rejects.toThrow(
    /device: kernel "add 1" failed: .*out of bounds/,
  )
})

test.each([
  ['may', () => 'timed-out' as const],
  [
    'may not',
    () => {
      throw new TypeError('Atomics.wait cannot be called in this context')
    },
  ],
])(
  'a thread that ends in a step is an error of the device where its caller %s sleep',
  async (_, wait) => {
    // It takes part in each task for good.
    stubThread((words, open) => Atomics.add(words, open, 1))
    vi.spyOn(Atomics, 'wait').mockImplementation(wait)
    try {
      const gpu = await open(2)
      const add = await kernel(gpu, 'add 1')
      const encoder = gpu.device.createCommandEncoder()
      let ms = performance.now()
      vi.spyOn(performance, 'now').mockImplementation(() => (ms += 0.2))
      add(encoder, gpu.createBuffer('numbers', 4 * 64 * 16, storage), 16)
      gpu.submit(encoder)
      await expect(gpu.wait(gpu.queue.onSubmittedWorkDone())).rejects.toThrow(
        'device: kernel "add 1" failed: a thread has not answered for 20 s.',
      )
    } finally {
      vi.unstubAllGlobals()
    }
  },
)

test('other tasks get turns while a dispatch waits for a thread, and it ends when that is done', async () => {
  // It is at its first task until other tasks of the caller have had two turns.
  let isFirst = true
  stubThread((words, open) => {
    if (!isFirst) return
    isFirst = false
    Atomics.add(words, open, 1)
    setImmediate(() => setImmediate(() => Atomics.sub(words, open, 1)))
  })
  vi.spyOn(Atomics, 'wait').mockReturnValue('timed-out')
  try {
    const gpu = await open(2)
    const slow = await kernel(gpu, 'slow')
    const buffer = gpu.createBuffer('numbers', 4 * 4000, storage)
    const encoder = gpu.device.createCommandEncoder()
    slow(encoder, buffer, 4000)
    gpu.submit(encoder)
    expect(new Set(await words(gpu, buffer))).toEqual(new Set([1]))
    expect(isFirst).toBe(false)
  } finally {
    vi.unstubAllGlobals()
  }
})

test('a thread that ends within a kernel is an error of the device 3 s later, which names it', async () => {
  vi.spyOn(console, 'warn').mockReturnValue()
  const { Worker } = process.getBuiltinModule('node:worker_threads')
  const listens = vi.spyOn(Worker.prototype, 'on')
  const gpu = await open(2)
  const [scratch, endless] = [await kernel(gpu, 'scratch'), await kernel(gpu, 'endless 0')]
  const buffer = gpu.createBuffer('numbers', 4 * 4000, storage)
  const first = gpu.device.createCommandEncoder()
  scratch(first, buffer, 1)
  gpu.submit(first)
  // Dispatches leave the thread out until it has begun.
  const lastMs = performance.now() + 10_000
  const done = (async () => {
    while (performance.now() < lastMs) {
      const encoder = gpu.device.createCommandEncoder()
      endless(encoder, buffer, 4000)
      gpu.submit(encoder)
      await gpu.wait(gpu.queue.onSubmittedWorkDone())
    }
  })().catch((error: unknown) => error)
  // It has a turn when the caller has waited for a second.
  let ms = performance.now()
  await vi.waitUntil(() => {
    const gap = performance.now() - ms
    ms = performance.now()
    return gap > 900
  }, 10_000)
  void (listens.mock.contexts[0] as InstanceType<typeof Worker>).terminate()
  expect(await done).toMatchObject({
    message: expect.stringContaining(
      'device: kernel "endless 0" failed: thread 1 ended while it computed (it exited with 1).',
    ),
  })
  expect(performance.now() - ms).toBeLessThan(3_000)
})

test('a kernel that fails is the first error of the device, and names itself', async () => {
  const gpu = await open()
  const trap = await kernel(gpu, 'trap')
  const buffer = gpu.createBuffer('numbers', 4, storage)
  const encoder = gpu.device.createCommandEncoder()
  trap(encoder, buffer, 1)
  gpu.submit(encoder)
  await expect(gpu.wait(gpu.queue.onSubmittedWorkDone())).rejects.toThrow(
    'device: kernel "trap" failed: unreachable. Later results are not valid.',
  )
  expect(() => gpu.check()).toThrow('kernel "trap"')
})

test.each<[string, (gpu: Gpu) => void, string]>([
  [
    'a destroyed buffer',
    (gpu) => {
      const [from, to] = [1, 2].map((n) => gpu.createBuffer(`number ${n}`, 8, storage))
      const encoder = gpu.device.createCommandEncoder()
      encoder.copyBufferToBuffer(from, 0, to, 0, 8)
      from.destroy()
      gpu.submit(encoder)
    },
    'device: "copy" was refused: buffer "number 1" is destroyed.',
  ],
  [
    'a buffer that is being mapped',
    (gpu) => {
      const staging = gpu.createBuffer('staging', 8, bufferUsage.MAP_READ | bufferUsage.COPY_DST)
      void staging.mapAsync(mapMode.READ)
      const encoder = gpu.device.createCommandEncoder()
      encoder.clearBuffer(staging)
      gpu.submit(encoder)
    },
    'device: "copy" was refused: buffer "staging" is pending.',
  ],
  [
    'a write past the end',
    (gpu) => gpu.write(gpu.createBuffer('number', 4, storage), Uint32Array.of(1, 2)),
    'device: a write was refused: it passes the end of "number".',
  ],
])('%s is refused', async (_, use, message) => {
  const gpu = await open()
  use(gpu)
  expect(() => gpu.check()).toThrow(message)
})

test('a destroyed device ends waits, and does nothing any more', async () => {
  const gpu = await open()
  const slow = await kernel(gpu, 'slow')
  const buffer = gpu.createBuffer('numbers', 4 * 4000, storage)
  const staging = gpu.createBuffer('staging', 8, bufferUsage.MAP_READ | bufferUsage.COPY_DST)
  const encoder = gpu.device.createCommandEncoder()
  slow(encoder, buffer, 4000)
  gpu.submit(encoder)
  const mapped = staging.mapAsync(mapMode.READ)
  gpu.close()
  await expect(gpu.wait(mapped)).rejects.toMatchObject({
    code: 'gpu.lost',
    message: expect.stringMatching(
      /^device: destroyed before its work was done \(.*"staging" or its device was destroyed\.\).*reopen it with runtimeOf/,
    ),
  })
  expect(await gpu.lost).toBe('destroyed: device was destroyed')
})

test('memory of buffers is used again when they are destroyed or collected, and is zero', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const heap = new WasmHeap()
  const grow = vi.spyOn(heap.memory, 'grow')
  const first = heap.allocate('first', 100)
  heap.bytes.fill(7, first, first + 100)
  const second = heap.allocate('second', 100)
  heap.allocate('third', 100)
  heap.free(first)
  heap.free(second)
  // Both gaps are one.
  const joined = heap.allocate('joined', 250)
  expect(joined).toBe(first)
  expect(heap.bytes.subarray(joined, joined + 250).every((byte) => byte === 0)).toBe(true)
  expect(heap.takenBytes).toBe(256 + 128)
  expect(grow).toHaveBeenCalledTimes(1)

  const small = new WasmHeap(64)
  const gpu = openSmall(small)
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < 3; i++) gpu.createBuffer('dropped', 2 ** 20, storage)
    // The device and its memory hear of what was collected one after the other.
    for (let turn = 0; turn < 100 && gpu.usedBytes + small.takenBytes > 0; turn++) {
      collect()
      await new Promise((resolve) => setTimeout(resolve))
    }
    expect([gpu.usedBytes, small.takenBytes]).toEqual([0, 0])
  }
})

test('kernels that nothing uses are freed, by the cache and by threads; those in use are kept', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const started = vi.fn()
  process.on('worker', started)
  const gpu = await open(2)
  const cache = new PipelineCache(gpu)
  const get = (text: string) =>
    cache.get({ label: text, wgsl: text, bindings: [{ access: 'update' }] })
  const used = await get('slow')
  const all: WeakRef<GPUComputePipeline>[] = []
  const alive = () => all.filter((one) => one.deref()).length
  for (let round = 0; round < 4; round++) {
    for (let i = 0; i < 100; i++) {
      all.push(new WeakRef((await get(`add 1 ${round} ${i}`)).pipeline))
    }
    for (let turn = 0; turn < 100 && alive() > 65; turn++) {
      // What was looked at stays until the next task.
      await new Promise((resolve) => setTimeout(resolve))
      collect()
      await new Promise((resolve) => setTimeout(resolve))
    }
    expect(alive()).toBeLessThanOrEqual(65)
  }
  expect(gpu.counters.pipelines).toBe(401)
  expect((await get('slow')).pipeline).toBe(used.pipeline)
  expect(gpu.counters.pipelines).toBe(401)
  // A thread is replaced by one that has only what is used, and takes part: with a kernel that comes once it is known what was collected.
  for (let i = 0; i < 100 && started.mock.calls.length < 2; i++) {
    await new Promise((resolve) => setTimeout(resolve))
    await get(`add 1 more ${i}`)
  }
  expect(started).toHaveBeenCalledTimes(2)
  process.off('worker', started)
  const add = await kernel(gpu, 'scratch')
  const buffer = gpu.createBuffer('users', 4 * 400, storage)
  const found = new Set<number>()
  for (let i = 0; i < 1000 && found.size < 2; i++) {
    const encoder = gpu.device.createCommandEncoder()
    encoder.clearBuffer(buffer)
    add(encoder, buffer, 400)
    gpu.submit(encoder)
    for (const user of await words(gpu, buffer)) found.add(user)
  }
  expect(found.size).toBe(2)
})

test('each thread is replaced once when it has neither kernel of a task and too many that nothing uses', () => {
  const live = new Set<object>()
  class Idle extends EventTarget {
    constructor() {
      super()
      live.add(this)
    }
    postMessage({ memory, address, bell, layout }: ThreadStart) {
      new Int32Array(memory.buffer, address)[bell + layout.begun] = 1
    }
    readonly terminate = () => live.delete(this)
  }
  let collected = (_: undefined): void => undefined
  class Registry {
    constructor(collect: typeof collected) {
      collected = collect
    }
    readonly register = () => undefined
  }
  vi.stubGlobal('Worker', Idle)
  vi.stubGlobal('FinalizationRegistry', Registry)
  vi.spyOn(console, 'warn').mockReturnValue()
  setNumThreads(3)
  const threads = new Threads(new WasmHeap())
  try {
    threads.start()
    for (let i = 0; i < 201; i++) collected(undefined)
    const before = [...live]
    const stages = [1, 2].map((n) => {
      const compiled = { code: new Uint8Array(8), bindings: [], scratchBytes: 0 }
      const pipeline = new WasmPipeline(`kernel ${n}`, () => undefined, compiled)
      pipeline.measured(1, 1)
      return { pipeline, groups: [8, 1, 1] as const, groupsAPiece: 1, addresses: [], strides: [] }
    })
    expect(threads.count).toBe(3)
    threads.run(stages, 0, 8, 1)
    expect(before.filter((one) => live.has(one))).toEqual([])
    expect(live.size).toBe(2)
    expect(threads.count).toBe(3)
  } finally {
    threads.stop()
    vi.unstubAllGlobals()
    setNumThreads(1)
  }
})

test('a thread takes nothing of a task when it has not loaded its kernel', async () => {
  const { memory } = new WasmHeap()
  const at = controlLayout
  const bell = at.bells
  const words = new Int32Array(memory.buffer, 0, bell + at.lineWords)
  const sleeps = () => vi.waitUntil(() => Atomics.load(words, bell + at.sleeps) === 1, 10_000)
  const start = { memory, address: 0, index: 1, bell, layout: at }
  const thread = startThread(start, () => undefined)
  try {
    await sleeps()
    words[at.end] = 8
    words[at.chunk] = words[at.runs] = words[at.stages] = 1
    words.set([7, 1, 8, 8, 1, 0], at.firstStage)
    Atomics.store(words, at.open, at.perTask)
    Atomics.store(words, bell + at.sleeps, 0)
    Atomics.add(words, bell, 1)
    Atomics.notify(words, bell)
    await sleeps()
    expect([words[at.failed], words[at.next], words[at.open]]).toEqual([0, 0, at.perTask])
  } finally {
    thread.stop()
  }
})

test('a region of no bytes has a unique address', () => {
  const heap = new WasmHeap()
  const empty = heap.allocate('empty', 0)
  const numbers = heap.allocate('numbers', 64)
  heap.free(empty)
  expect(heap.allocate('more', 64)).not.toBe(numbers)
})

test('a buffer throws when there is no memory for it', () => {
  const gpu = openSmall()
  const one = gpu.createBuffer('one', 2 ** 20, storage)
  const message =
    'device: "weights" needs 3MiB in one piece, and 1MiB of the 4MiB that WebAssembly gives are taken.'
  const make = () => gpu.createBuffer('weights', 3 * 2 ** 20, storage)
  expect(make).toThrow(message)
  one.destroy()
  make()
  gpu.check()
})

test('the device cpu uses relaxed_madd when the switch is set and the engine has it, and says which', async () => {
  const relaxed: (boolean | undefined)[] = []
  const noting: CompileKernel = (wgsl, options) => {
    relaxed.push(options.isRelaxed)
    return compile(wgsl, options)
  }
  const opening = async () => {
    const gpu = await openWasm(noting)
    opened.push(gpu)
    await kernel(gpu, 'add 1')
    return gpu.facts.description
  }
  const validate = vi.spyOn(WebAssembly, 'validate')
  expect(await opening()).not.toContain('relaxed_madd')
  setSwitches({ relaxedMadd: true })
  try {
    validate.mockReturnValue(false)
    expect(await opening()).toContain('without relaxed_madd, which this engine lacks')
    validate.mockReturnValue(true)
    expect(await opening()).toContain('with relaxed_madd')
  } finally {
    setSwitches({ relaxedMadd: false })
  }
  expect(relaxed).toEqual([undefined, undefined, true])
})

test('a heap takes less memory when the engine cannot reserve 4 GiB', () => {
  const { Memory } = WebAssembly
  class SmallMemory extends Memory {
    constructor(descriptor: WebAssembly.MemoryDescriptor) {
      if (descriptor.maximum! > 100) throw new RangeError('could not allocate memory')
      super(descriptor)
    }
  }
  WebAssembly.Memory = SmallMemory
  const heap = new WasmHeap(256)
  WebAssembly.Memory = Memory
  heap.allocate('first', 3 * 2 ** 20)
  expect(() => heap.allocate('second', 2 ** 20)).toThrow('3MiB of the 4MiB that WebAssembly gives')
})
