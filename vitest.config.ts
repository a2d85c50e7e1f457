import { availableParallelism } from 'node:os'
import { playwright } from '@vitest/browser-playwright'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { browserFlags, findBrowser } from './node/chromium.ts'
import { isolationHeaders } from './node/headers.ts'
import viteConfig from './vite.config.ts'

/**
 * Specs that drive browsers and hold no times against bounds that a busy machine could pass, nor wait long where training is slow: they run
 * beside the one page of `gpu`.
 */
const besidePage = [
  'axe',
  'collective-cells',
  'connect',
  'demo-picture',
  'demo-ring',
  'demo-strategies',
  'download',
  'drop',
  'init',
  'lanes',
  'library',
  'library-project',
  'own-gpu-pages',
  'page-states',
  'run-command',
  'run-restart',
  'run-tabs',
  'start',
  'store',
  'train-cpu',
  'train-resume',
].map((name) => `tests/e2e/${name}.spec.ts`)

/**
 * Specs whose browsers train much, but hold no times against bounds: on four cores two of them run at once. All other specs of browsers
 * have the machine to themselves.
 */
const inPairs = ['demo-text', 'demos', 'live', 'page', 'random-acts', 'train', 'train-command'].map(
  (name) => `tests/e2e/${name}.spec.ts`,
)

/** Begins first: it mostly waits for the adapter's compiler, and the browsers beside it do not mind. */
const compiling = 'tests/gpu/every-op.spec.ts'

class BrowsersFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const isFirst = ({ moduleId }: TestSpecification) =>
      [compiling, ...besidePage].some((file) => moduleId.endsWith(`/${file}`))
    return [...sorted.filter(isFirst), ...sorted.filter((file) => !isFirst(file))]
  }
}

/** Of two cores one is left to the page beside them. */
const besideWorkers = Math.max(1, Math.min(2, Math.floor(availableParallelism() / 2)))

/** Tests count on the software adapter, which all machines have; `TABRING_ADAPTER=gpu` looks at the machine's own instead. */
const adapter = process.env.TABRING_ADAPTER === 'gpu' ? 'auto' : 'software'

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
    name: 'gpu',
    include: ['tests/gpu/**/*.spec.ts'],
    testTimeout: 60_000,
    sequence: { groupOrder: 1 },
    maxWorkers: besideWorkers, // the group's
    browser: {
      enabled: true,
      fileParallelism: false,
      headless: true,
      screenshotFailures: false,
      provider: playwright({
        launchOptions: {
          executablePath: findBrowser(),
          // A spec that counts the heap's bytes collects garbage first.
          args: [
            ...browserFlags(adapter),
            '--js-flags=--expose-gc',
            '--enable-precise-memory-info',
          ],
        },
      }),
      instances: [{ browser: 'chromium' as const }],
    },
  },
}

/** Specs that drive browsers and processes from Node. */
const drive = {
  environment: 'node' as const,
  globalSetup: './tests/support/build-once.ts',
  testTimeout: 240_000,
  hookTimeout: 120_000,
}
const e2e = {
  test: {
    ...drive,
    name: 'e2e',
    // Not those of the projects that they make.
    include: ['tests/e2e/*.spec.ts'],
    exclude: [...besidePage, ...inPairs],
    maxWorkers: 1,
    sequence: { groupOrder: 3 },
  },
}
const e2ePairs = {
  test: {
    ...drive,
    name: 'e2e-pairs',
    include: inPairs,
    maxWorkers: besideWorkers,
    sequence: { groupOrder: 2 },
  },
}
const e2eBeside = {
  test: {
    ...drive,
    name: 'e2e-beside',
    include: besidePage,
    maxWorkers: besideWorkers,
    sequence: { groupOrder: 1 },
  },
}

const unit = {
  test: {
    name: 'unit',
    environment: 'node' as const,
    include: ['tests/unit/**/*.spec.ts'],
    testTimeout: 30_000,
    maxWorkers: besideWorkers,
    sequence: { groupOrder: 1 },
  },
}

// Groups run one after the other, the projects of a group at once. One software adapter keeps two cores busy, and its
// threads spin while they wait: on two cores a second browser that uses it makes both take more than twice as long (measured).
export default defineConfig({
  test: {
    sequence: { sequencer: BrowsersFirst },
    projects: [unit, gpu, e2eBeside, e2ePairs, e2e],
  },
})
