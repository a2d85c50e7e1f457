/** Watching WebGPU from outside, by its prototypes: works on every library, and is taken off again before anything is timed. */

export interface GpuCalls {
  dispatches: number
  submits: number
  passes: number
  writes: number
  buffers: number
  bindGroups: number
  pipelines: number
  maps: number
  bytesUploaded: number
}

const none = (): GpuCalls => ({
  dispatches: 0,
  submits: 0,
  passes: 0,
  writes: 0,
  buffers: 0,
  bindGroups: 0,
  pipelines: 0,
  maps: 0,
  bytesUploaded: 0,
})

// biome-ignore lint/suspicious/noExplicitAny: methods of any signature are wrapped the same way
type Methods = Record<string, (...args: any[]) => any>

/** Calls `seen` before every call of a method, and `after` after it, until the returned function is called. */
function watch(
  // biome-ignore lint/suspicious/noExplicitAny: as above
  owner: { prototype: any },
  name: string,
  // biome-ignore lint/suspicious/noExplicitAny: as above
  seen: (target: any, args: any[]) => void,
  after: () => void = () => undefined,
): () => void {
  const methods = owner.prototype as Methods
  const original = methods[name]
  methods[name] = function (this: unknown, ...args) {
    seen(this, args)
    const result = original.apply(this, args)
    after()
    return result
  }
  return () => {
    methods[name] = original
  }
}

/** Counts what `body` asks of WebGPU. */
export async function countCalls(body: () => Promise<unknown>): Promise<GpuCalls> {
  const calls = none()
  const count = (field: keyof GpuCalls) => () => {
    calls[field]++
  }
  const undo = [
    watch(GPUComputePassEncoder, 'dispatchWorkgroups', count('dispatches')),
    watch(GPUComputePassEncoder, 'dispatchWorkgroupsIndirect', count('dispatches')),
    watch(GPUCommandEncoder, 'beginComputePass', count('passes')),
    watch(GPUQueue, 'submit', count('submits')),
    watch(GPUQueue, 'writeBuffer', (_, [, , data, , size]) => {
      calls.writes++
      const elementBytes = ArrayBuffer.isView(data)
        ? ((data as Uint8Array).BYTES_PER_ELEMENT ?? 1)
        : 1
      calls.bytesUploaded += size === undefined ? data.byteLength : size * elementBytes
    }),
    watch(GPUDevice, 'createBuffer', (_, [{ size, mappedAtCreation }]) => {
      calls.buffers++
      if (mappedAtCreation) calls.bytesUploaded += size
    }),
    watch(GPUDevice, 'createBindGroup', count('bindGroups')),
    watch(GPUDevice, 'createComputePipeline', count('pipelines')),
    watch(GPUDevice, 'createComputePipelineAsync', count('pipelines')),
    watch(GPUBuffer, 'mapAsync', count('maps')),
  ]
  try {
    await body()
  } finally {
    for (const one of undo) one()
  }
  return calls
}

/** The difference of `long` and `short`, by step. */
export function perStep(short: GpuCalls, long: GpuCalls, steps: number): GpuCalls {
  const fields = Object.keys(short) as (keyof GpuCalls)[]
  return Object.fromEntries(
    fields.map((field) => [field, (long[field] - short[field]) / steps]),
  ) as unknown as GpuCalls
}

/** One dispatch as it was encoded. */
export interface RecordedDispatch {
  pipeline: GPUComputePipeline
  bindGroup: GPUBindGroup
  groups: [number, number, number]
}

/** The dispatches that `body` encodes, in order; for programs with one bind group a pipeline. */
export async function recordDispatches(body: () => Promise<unknown>): Promise<RecordedDispatch[]> {
  const recorded: RecordedDispatch[] = []
  let pipeline: GPUComputePipeline
  let bindGroup: GPUBindGroup
  const undo = [
    watch(GPUComputePassEncoder, 'setPipeline', (_, [given]) => {
      pipeline = given
    }),
    watch(GPUComputePassEncoder, 'setBindGroup', (_, [, given]) => {
      bindGroup = given
    }),
    watch(GPUComputePassEncoder, 'dispatchWorkgroups', (_, [x, y = 1, z = 1]) => {
      recorded.push({ pipeline, bindGroup, groups: [x, y, z] })
    }),
  ]
  try {
    await body()
  } finally {
    for (const one of undo) one()
  }
  return recorded
}

/** Milliseconds of JavaScript, one value for each step; those of its encoders and passes are summed. */
export interface EncodingTimes {
  /** Beginning its passes. */
  beginPass: number[]
  /** From a begun pass to its end: the dispatches. */
  inside: number[]
  /** From making an encoder to the finished command buffer: passes begun and ended, outputs copied. */
  whole: number[]
}

/** Times what `body` encodes; it calls `endStep` after each step. */
export async function timeEncoding(
  body: (endStep: () => void) => Promise<unknown>,
): Promise<EncodingTimes> {
  const times: EncodingTimes = { beginPass: [], inside: [], whole: [] }
  const sums = { beginPass: 0, inside: 0, whole: 0 }
  let made = 0
  let beforePass = 0
  let inPass = 0
  const undo = [
    watch(GPUDevice, 'createCommandEncoder', () => {
      made = performance.now()
    }),
    watch(
      GPUCommandEncoder,
      'beginComputePass',
      () => {
        beforePass = performance.now()
      },
      () => {
        inPass = performance.now()
        sums.beginPass += inPass - beforePass
      },
    ),
    watch(GPUComputePassEncoder, 'end', () => {
      sums.inside += performance.now() - inPass
    }),
    watch(
      GPUCommandEncoder,
      'finish',
      () => undefined,
      () => {
        sums.whole += performance.now() - made
      },
    ),
  ]
  try {
    await body(() => {
      for (const part of ['beginPass', 'inside', 'whole'] as const) {
        times[part].push(sums[part])
        sums[part] = 0
      }
    })
  } finally {
    for (const one of undo) one()
  }
  return times
}
