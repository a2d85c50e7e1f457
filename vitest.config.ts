import { availableParallelism } from 'node:os'
import { playwright } from '@vitest/browser-playwright'
import { defineConfig } from 'vitest/config'
import { chosenBrowser, findChosen } from './node/browser-choice.ts'
import { browserFlags, findBrowser } from './node/chromium.ts'
import { isolationHeaders } from './node/headers.ts'
import { lavapipeOnly } from './node/vulkan.ts'
import { firefox } from './tests/support/firefox-provider.ts'
import viteConfig from './vite.config.ts'

/**
 * Folders of specs: `npm test` runs tests/<kind>; `npm run test:all`, and a run of named specs, those of tests/all/<kind> too
 * (scripts/test.ts sets the variable).
 */
const isAll = process.env.TABRING_TESTS === 'all'
const specsOf = (kind: string): string[] => [
  `tests/${kind}/**/*.spec.ts`,
  ...(isAll ? [`tests/all/${kind}/**/*.spec.ts`] : []),
]

const cores = availableParallelism()

/** A poll waits for an event however busy the machine is; Vitest's second would be a bound on time. */
const patient = { expect: { poll: { timeout: 30_000 } } }

/** Undefined on a machine without one, which may still run the specs of Node. */
function browserPath(): string | undefined {
  try {
    return findBrowser()
  } catch {
    return undefined
  }
}

/** Tests count on the software adapter, which all machines have; `TABRING_ADAPTER=gpu` takes the machine's own instead. */
const adapter = process.env.TABRING_ADAPTER === 'gpu' ? 'auto' : 'software'

/** `TABRING_ADAPTER=lavapipe`: Mesa's software adapter, in Firefox; Chromium's Dawn refuses it (Mesa 22.3). */
const isLavapipe = process.env.TABRING_ADAPTER === 'lavapipe'

/** Specs that run inside a real page: they call WebGPU, WebRTC and SharedWorker themselves. */
const gpu = {
  optimizeDeps: {
    // Those of the pages too: found in mid-run, they reload the page that tests.
    include: [
      ...(viteConfig.optimizeDeps?.include ?? []),
      ...['preact', 'preact/hooks', 'preact/jsx-dev-runtime', 'uplot', 'uqr'],
    ],
  },
  server: { headers: isolationHeaders },
  test: {
    ...patient,
    name: 'gpu',
    // What every device must give, on this one too.
    include: [...specsOf('gpu'), ...(isAll ? ['tests/values/**/*.spec.ts'] : [])],
    setupFiles: './tests/support/webgpu-device.ts',
    testTimeout: 60_000,
    sequence: { groupOrder: 2 },
    maxWorkers: 1,
    browser: {
      enabled: true,
      fileParallelism: false,
      headless: true,
      screenshotFailures: false,
      ...(isLavapipe
        ? {
            provider: firefox(findChosen(chosenBrowser('firefox')), lavapipeOnly() ?? {}),
            instances: [{ browser: 'firefox' as const }],
          }
        : {
            provider: playwright({
              launchOptions: {
                executablePath: browserPath(),
                // A spec that counts the heap's bytes collects garbage first.
                args: [
                  ...browserFlags(adapter),
                  '--js-flags=--expose-gc',
                  '--enable-precise-memory-info',
                ],
              },
            }),
            instances: [{ browser: 'chromium' as const }],
          }),
    },
  },
}

/** Specs that drive browsers and processes from Node. */
const drive = {
  ...patient,
  environment: 'node' as const,
  globalSetup: './tests/support/build-once.ts',
  testTimeout: 240_000,
  hookTimeout: 120_000,
}
const e2e = {
  test: {
    ...drive,
    name: 'e2e',
    globalSetup: [drive.globalSetup, './tests/support/pack-folder.ts'],
    include: specsOf('e2e'),
    // Those of the projects that the specs make.
    exclude: ['**/fixtures/**'],
    maxWorkers: Math.max(1, Math.floor(cores / 2)),
    sequence: { groupOrder: 3 },
  },
}

/** Specs of the `gpu` project that Node runs on the device `cpu` too. */
const specsOfCpu = [
  ...['every-op', 'golden-ops', 'special-values', 'trajectory'].map(
    (name) => `tests/gpu/${name}.spec.ts`,
  ),
  ...(isAll
    ? [
        ...['amp-layers', 'attention-bias', 'attention-golden', 'conv-golden', 'conv-runs'],
        ...['cpu-hashes-200', 'every-op', 'gradients', 'input-gradients', 'memory-flat'],
        'trajectory',
      ].map((name) => `tests/all/gpu/${name}.spec.ts`)
    : []),
]

const unit = {
  test: {
    ...patient,
    name: 'unit',
    environment: 'node' as const,
    include: [...specsOf('unit'), 'tests/values/**/*.spec.ts', ...specsOfCpu],
    setupFiles: './tests/support/no-leftovers.ts',
    testTimeout: 30_000,
    // A worker imports src once for all its specs (measured: 29 s in place of 65 for 87 specs). Run with --sequence.shuffle.files to find
    // a spec that leaves state behind.
    isolate: false,
    maxWorkers: cores,
    sequence: { groupOrder: 1 },
  },
}

/** Specs that hold times against bounds: one at a time, on however many cores. */
const timing = {
  test: {
    ...drive,
    name: 'timing',
    include: specsOf('timing'),
    maxWorkers: 1,
    sequence: { groupOrder: 4 },
  },
}

/** Several machines, as network namespaces: Linux and root only. */
const net = {
  test: {
    ...patient,
    name: 'net',
    environment: 'node' as const,
    include: specsOf('net'),
    testTimeout: 120_000,
    hookTimeout: 30_000,
    // Each spec has its own networks.
    maxWorkers: 2,
    sequence: { groupOrder: 5 },
  },
}

// Groups run one after the other; scripts/test.ts runs `unit` next to `gpu` and `e2e`.
export default defineConfig({ test: { projects: [unit, gpu, e2e, timing, net] } })
