import type { SwitchName } from '../../src/util/switches.ts'

/** What each switch does, in Markdown; one entry a value where values differ. Not in the table, which every page loads. */
export const switchEffects: { readonly [Name in SwitchName]: readonly string[] } = {
  debug: [
    'Logs to the console; each level includes the lower ones:',
    '`1` lifecycle: adapter and limits, devices lost and reopened, rooms, epochs, ranks',
    '`2` a table of kernel times from timestamp queries, after runs 1, 2, 4, 8 … of each program (means since the previous table); a line of totals per run; a line per collective',
    '`3` the plan of each program: buffers, reuse, peak bytes, buckets, and the variant chosen for each op with the reason',
    '`4` the WGSL of each pipeline as submitted',
    '`5` checks every value of every run: scans for NaN and infinities after each op, and compares each op with its reference (one rank only; slow). On `reference`, where ops run as their references, only the scan applies, and levels 2 to 4 log nothing',
  ],
  naive: [
    'Turns off rewrites and uses the first variant of every op, as the option `useNaiveKernels` of `compile` does for one program.',
  ],
  variant: [
    'Forces variants for the calls that they can run: `matmul:direct-8x8`. Takes precedence over tuned variants and the fixed table.',
  ],
  trace: [
    'Records spans of steps, kernels and collectives: as performance.measure in the performance panel of the developer tools, and as a Chrome trace for Perfetto or speedscope (`exportTrace()`, the button below a finished run, `--trace FILE` of the launcher).',
  ],
  drop: ['Drops this fraction of the messages that this rank sends to others.'],
  delayMs: ['Delays each message to other ranks by this time.'],
  stallRank: ['This rank silently sends nothing to others. Set it on every rank.'],
  lanes: [
    'Opens this many connections per WebRTC link, because the data in flight per round trip limits the rate of one connection. Default: one; four where the round trip takes 5 ms or more; eight from 40 ms. `debug=1` logs the number. The side with the lower rank decides.',
  ],
  device: [
    'What the page, and programs of the library without a device, compute on; `--device` of the launchers:',
    '`auto` a GPU where there is one, else `cpu`',
    '`webgpu` WebGPU, on a software adapter too',
    '`cpu` the CPU, in WebAssembly',
    '`reference` the plain definitions of the ops in float64, slowly',
    'In code: `setDefaultDevice("cpu")`.',
  ],
  numThreads: [
    "The device `cpu` computes on this many threads; results do not depend on it. Default: the machine's cores, divided by the ranks of a launcher. Also the variable OMP_NUM_THREADS. A page that is not isolated from other origins has one. In code: `setNumThreads(2)`, at any time.",
  ],
  relaxedMadd: [
    'The device `cpu` uses `relaxed_madd`, where the engine has it: products of matrices take 0.8 of the time, and the bits differ between processors. So `exact` refuses it. Before the device is opened.',
  ],
  visibleDevices: [
    'Makes only these WebGPU devices visible and renumbers them in this order, like CUDA_VISIBLE_DEVICES: with `1`, `webgpu:0` is device 1. The list ends at the first number that has no device; an empty list or `-1` hides all. By default all devices are visible: 0 is the fastest adapter, followed by the low-power adapter and the software adapter of the browser, if they are different ones. In code: `gpu.setVisibleDevices("0,2")`, before a device is opened.',
  ],
  logicalDevices: [
    'Splits each adapter into this many devices, which share its compute units but no memory: with `2` on one adapter, `webgpu:0` and `webgpu:1` are two devices of it. `visibleDevices` numbers these. Use it to try multi-device code on one adapter. In code: `gpu.logicalDevices(2)`, before a device is opened.',
  ],
  memoryCap: [
    'Refuses a buffer with which a device would hold more than this, as if it had no more memory. The error names the tensors and what is taken. Use it to plan for smaller devices, or to leave memory to others. In code: `gpu.setMemoryCap("64MB")`.',
  ],
  maxWorkers: [
    'Limits how many workers a `DataLoader` starts, whatever its `numWorkers` is; batches and their order stay the same. `--cpus-per-task` of `tabring run` and SLURM_CPUS_PER_TASK set it.',
  ],
}
