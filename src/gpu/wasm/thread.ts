import { maxThreads } from '../../util/device.ts'

/** How a thread begins: crosses to its worker. */
export interface ThreadStart {
  readonly memory: WebAssembly.Memory
  /** Of the control block, in bytes. */
  readonly address: number
  /** Of the thread; 0 is the one that gives tasks. */
  readonly index: number
  /** The word of its bell. */
  readonly bell: number
  readonly layout: typeof controlLayout
}

const wordsOfText = 192
/** Words of a line of the CPU's cache, so that two threads wait for different lines. */
const lineWords = 16
const maxAddresses = 32
const maxStages = 2
const wordsOfStage = 6
const stageWords = wordsOfStage + 2 * maxAddresses
const firstStage = 3 * lineWords + 7
const bells = Math.ceil((firstStage + maxStages * stageWords + wordsOfText) / lineWords) * lineWords

/** Where the 32-bit words of the control block lie, by which a device's threads share work. */
export const controlLayout = {
  maxThreads,
  /** The next workgroup that no thread has taken. */
  next: 0,
  /**
   * The task that threads may begin, and how many are at it, but the one that gives tasks: its number times `perTask`, and their count. 0: none may.
   * One that comes late finds it 0, or the next task, and nobody waits for it.
   */
  open: lineWords,
  perTask: 256,
  /** Length of the error in `text`; 0: none. */
  failed: 2 * lineWords,
  /** 1 while the caller sleeps: who changes what it waits for wakes it then. */
  callerSleeps: 2 * lineWords + 1,
  /** Past the last piece of the task, and how many pieces a thread takes at once. */
  end: 3 * lineWords + 1,
  chunk: 3 * lineWords + 2,
  /** For how many runs each piece is computed. */
  runs: 3 * lineWords + 3,
  /** Scratch memory of thread 0, and bytes to that of the next. */
  scratch: 3 * lineWords + 4,
  scratchBytes: 3 * lineWords + 5,
  /** How many stages follow. Of each: the kernel, the workgroups of a piece, all workgroups, those along x and y, how many addresses follow. */
  stages: 3 * lineWords + 6,
  firstStage,
  stageWords,
  /** Behind a stage: addresses of the buffers, and bytes from each to that of the next run. */
  addresses: wordsOfStage,
  strides: wordsOfStage + maxAddresses,
  text: firstStage + maxStages * stageWords,
  wordsOfText,
  /** How often a thread was woken: two lines for each, as one that is being stopped may still look at its line when another takes its place. */
  bells,
  lineWords,
  /** Reads of a word before a thread sleeps: some 200 µs. Dispatches that the caller runs alone take less, and waking takes some 50 µs. */
  spins: 40_000,
  /** Behind a thread's bell: 1 once it has begun. */
  begun: 1,
  /** Behind it: the bytes of a kernel to load before the next task, 0 once that is done; the kernel, and where its code is. */
  load: 2,
  /** Behind it: 1 while the thread sleeps. Waking one that spins took a fifth of a small step. */
  sleeps: 5,
  /** Behind it: 1 while the thread is at a task, by which others know where it ended. */
  works: 6,
} as const

/**
 * Runs a thread of a device: takes workgroups of each task until none is left, and sleeps between tasks. It never returns.
 *
 * It is given to Node as text, so that it calls nothing outside of itself, and has no function within.
 */
export function runThread({ memory, address, index, bell, layout: at }: ThreadStart): void {
  const words = new Int32Array(memory.buffer, address, bell + at.lineWords)
  const kernels = new Map<number, (...args: number[]) => void>()
  let rings = 0
  Atomics.store(words, bell + at.begun, 1)
  for (;;) {
    for (let i = 0; i < at.spins && Atomics.load(words, bell) === rings; i++);
    Atomics.store(words, bell + at.sleeps, 1)
    Atomics.wait(words, bell, rings)
    Atomics.store(words, bell + at.sleeps, 0)
    if (Atomics.load(words, bell) === rings) continue
    rings = Atomics.load(words, bell)
    const bytes = Atomics.load(words, bell + at.load)
    if (bytes > 0) {
      const [kernel, code] = words.subarray(bell + at.load + 1)
      const module = new WebAssembly.Module(new Uint8Array(memory.buffer, code, bytes).slice())
      const { exports } = new WebAssembly.Instance(module, { host: { memory } })
      kernels.set(kernel, exports.run as (...args: number[]) => void)
      Atomics.store(words, bell + at.load, 0)
    }
    let open = Atomics.load(words, at.open)
    while (open > 0) {
      const found = Atomics.compareExchange(words, at.open, open, open + 1)
      if (found === open) break
      open = found
    }
    if (open === 0) continue
    words[bell + at.works] = 1
    const stages = Array.from({ length: words[at.stages] }, (_, i) => {
      const stage = at.firstStage + i * at.stageWords
      const [kernel, groupsAPiece, groups, x, y, count] = words.subarray(stage, stage + 6)
      const listAt = (start: number) => [...words.subarray(stage + start, stage + start + count)]
      const [addresses, strides] = [listAt(at.addresses), listAt(at.strides)]
      return { compute: kernels.get(kernel), groupsAPiece, groups, x, y, addresses, strides }
    })
    // Woken for a kernel or an earlier task, it may find one that it was not given.
    const hasAll = stages.every(({ compute }) => compute)
    try {
      const end = words[at.end]
      const chunk = words[at.chunk]
      const runs = words[at.runs]
      const scratch = words[at.scratch] + index * words[at.scratchBytes]
      while (hasAll) {
        const piece = Atomics.add(words, at.next, chunk)
        if (piece >= end) break
        const taken = Math.min(chunk, end - piece)
        for (let run = 0; run < runs; run++)
          for (const { compute, groupsAPiece, groups, x, y, addresses, strides } of stages) {
            const first = piece * groupsAPiece
            const own = Math.min(taken * groupsAPiece, groups - first)
            const others = run ? addresses.map((one, j) => one + run * strides[j]) : addresses
            if (own > 0) compute!(first, own, x, y, scratch, ...others)
          }
      }
    } catch (error) {
      const text = String(error).slice(0, at.wordsOfText)
      for (let i = 0; i < text.length; i++) words[at.text + i] = text.charCodeAt(i)
      Atomics.store(words, at.failed, text.length)
    }
    words[bell + at.works] = 0
    Atomics.sub(words, at.open, 1)
    if (Atomics.load(words, at.callerSleeps) === 1) Atomics.notify(words, at.open)
  }
}
