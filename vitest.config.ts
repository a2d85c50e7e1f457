import { playwright } from '@vitest/browser-playwright'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { browserFlags, findBrowser } from './node/chromium.ts'
import { isolationHeaders } from './node/headers.ts'
import viteConfig from './vite.config.ts'

/** Specs of single kernels: they mostly wait for the adapter's compiler, which in one browser compiles one after the other. */
const ofKernels = ['tests/gpu/*golden*.spec.ts', 'tests/gpu/every-op.spec.ts']

/** Specs that say how soon something is noticed: nothing runs beside them. */
const ofTime = ['tests/e2e/death.spec.ts', 'tests/e2e/overlap.spec.ts']

/** Specs that take longest begin first, so that the others run beside them; without times of earlier runs Vitest goes by size. */
const longest = ['train-command.spec.ts', 'every-op.spec.ts', 'data-parallel.spec.ts']

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const isLong = ({ moduleId }: TestSpecification) =>
      longest.some((name) => moduleId.endsWith(`/${name}`))
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))]
  }
}

/** A project whose specs run inside a real page, in a browser of its own: they call WebGPU, WebRTC and SharedWorker themselves. */
const inPage = (name: string, include: string[], exclude: string[] = []) => ({
  optimizeDeps: viteConfig.optimizeDeps,
  server: { headers: isolationHeaders },
  test: {
    name,
    include,
    exclude,
    testTimeout: 60_000,
    sequence: { groupOrder: 1 },
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
            ...browserFlags('software'),
            '--js-flags=--expose-gc',
            '--enable-precise-memory-info',
          ],
        },
      }),
      instances: [{ browser: 'chromium' as const }],
    },
  },
})

/** A project whose specs drive browsers and processes from Node, `workers` files at a time. */
const fromNode = (
  name: string,
  groupOrder: number,
  workers: number,
  include: string[],
  exclude: string[] = [],
) => ({
  test: {
    name,
    environment: 'node' as const,
    include,
    exclude,
    globalSetup: './tests/support/build-once.ts',
    testTimeout: 240_000,
    hookTimeout: 120_000,
    maxWorkers: workers,
    sequence: { groupOrder },
  },
})

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    // Groups run one after the other, the projects of a group at once.
    projects: [
      {
        test: {
          name: 'unit',
          environment: 'node',
          include: ['tests/unit/**/*.spec.ts'],
          testTimeout: 30_000,
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      inPage('gpu kernels', ofKernels),
      inPage('gpu', ['tests/gpu/**/*.spec.ts'], ofKernels),
      fromNode('e2e', 2, 2, ['tests/e2e/**/*.spec.ts'], ofTime),
      fromNode('time', 3, 1, ofTime),
    ],
  },
})
