import { playwright } from '@vitest/browser-playwright'
import { defineConfig } from 'vitest/config'
import { browserFlags, findBrowser } from './node/chromium.ts'
import { isolationHeaders } from './node/headers.ts'
import viteConfig from './vite.config.ts'

export default defineConfig({
  test: {
    // One project after the other: software WebGPU takes all cores, and tests of time need them for themselves.
    projects: [
      {
        test: {
          name: 'unit',
          environment: 'node',
          include: ['tests/unit/**/*.spec.ts'],
          testTimeout: 30_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        // Runs inside a real page: the specs themselves call WebGPU, WebRTC and SharedWorker.
        optimizeDeps: viteConfig.optimizeDeps,
        server: { headers: isolationHeaders },
        test: {
          name: 'gpu',
          include: ['tests/gpu/**/*.spec.ts'],
          testTimeout: 60_000,
          sequence: { groupOrder: 1 },
          fileParallelism: false,
          browser: {
            enabled: true,
            headless: true,
            screenshotFailures: false,
            provider: playwright({
              launchOptions: { executablePath: findBrowser(), args: browserFlags('software') },
            }),
            instances: [{ browser: 'chromium' }],
          },
        },
      },
      {
        test: {
          name: 'e2e',
          environment: 'node',
          include: ['tests/e2e/**/*.spec.ts'],
          testTimeout: 120_000,
          sequence: { groupOrder: 2 },
          hookTimeout: 120_000,
          fileParallelism: false,
        },
      },
    ],
  },
})
