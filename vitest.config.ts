import { playwright } from '@vitest/browser-playwright'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { browserFlags, findBrowser } from './node/chromium.ts'
import { isolationHeaders } from './node/headers.ts'
import viteConfig from './vite.config.ts'

/** The spec that mostly waits for the adapter's compiler begins first: that leaves a core to the unit tests beside it. */
const first = 'every-op.spec.ts'

class CompilerFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const isFirst = ({ moduleId }: TestSpecification) => moduleId.endsWith(`/${first}`)
    return [...sorted.filter(isFirst), ...sorted.filter((file) => !isFirst(file))]
  }
}

/** Tests count on the software adapter, which all machines have; `TABRING_ADAPTER=gpu` looks at the machine's own instead. */
const adapter = process.env.TABRING_ADAPTER === 'gpu' ? 'auto' : 'software'

/** Specs that run inside a real page: they call WebGPU, WebRTC and SharedWorker themselves. */
const gpu = {
  optimizeDeps: viteConfig.optimizeDeps,
  server: { headers: isolationHeaders },
  test: {
    name: 'gpu',
    include: ['tests/gpu/**/*.spec.ts'],
    testTimeout: 60_000,
    sequence: { groupOrder: 0 },
    fileParallelism: false,
    browser: {
      enabled: true,
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
const e2e = {
  test: {
    name: 'e2e',
    environment: 'node' as const,
    // Not those of the projects that they make.
    include: ['tests/e2e/*.spec.ts'],
    globalSetup: './tests/support/build-once.ts',
    testTimeout: 240_000,
    hookTimeout: 120_000,
    maxWorkers: 1,
    sequence: { groupOrder: 1 },
  },
}

const unit = {
  test: {
    name: 'unit',
    environment: 'node' as const,
    include: ['tests/unit/**/*.spec.ts'],
    testTimeout: 30_000,
    maxWorkers: 1,
    sequence: { groupOrder: 0 },
  },
}

// Groups run one after the other, the projects of a group at once. One software adapter keeps two cores busy, and its
// threads spin while they wait: a second browser beside it makes both take more than twice as long (measured).
export default defineConfig({
  test: { sequence: { sequencer: CompilerFirst }, projects: [unit, gpu, e2e] },
})
