import { parseArgs } from 'node:util'
import { chromium } from 'playwright'
import { createServer } from 'vite'
import { browserFlags, findBrowser } from '../../node/chromium.ts'
import { messageOf } from '../../src/util/errors.ts'
import type { benchMatmul, MatmulBenchOptions, MatmulBenchRow } from './matmul.ts'

// Times the matmul variants in headless Chromium:
//   npx tsx bench/kernels/run.ts [--shapes mlp,small,rows,cubes,large] [--preferred] [--adapter auto|software] [--json]

const shapeSets = ['mlp', 'small', 'rows', 'cubes', 'large'] as const

const table = (rows: readonly MatmulBenchRow[]): string =>
  [
    ['call', 'variant', 'ms', 'range', 'GFLOP/s', 'first ms'],
    ...rows.map(({ row, variant, isPreferred, ms, rangeMs, gflops, firstMs }) => [
      row,
      `${variant}${isPreferred ? ' *' : ''}`,
      ms.toFixed(3),
      rangeMs.map((t) => t.toFixed(2)).join('-'),
      gflops.toFixed(2),
      firstMs.toFixed(0),
    ]),
  ]
    .map(([call, variant, ms, span, gflops, firstMs]) =>
      [
        call.padEnd(24),
        variant.padEnd(16),
        ms.padStart(9),
        span.padStart(17),
        gflops.padStart(9),
        firstMs.padStart(10),
      ].join(''),
    )
    .join('\n')

async function main() {
  const { values } = parseArgs({
    options: {
      shapes: { type: 'string', default: 'mlp,small,rows,cubes' },
      preferred: { type: 'boolean', default: false },
      adapter: { type: 'string', default: 'software' },
      json: { type: 'boolean', default: false },
    },
  })
  const sets = values.shapes.split(',') as MatmulBenchOptions['shapes'][]
  const wrong = sets.find((set) => !shapeSets.includes(set))
  if (wrong) throw new Error(`bench: --shapes takes ${shapeSets.join(', ')}, got ${wrong}.`)
  if (values.adapter !== 'auto' && values.adapter !== 'software') {
    throw new Error(`bench: --adapter takes auto or software, got ${values.adapter}.`)
  }
  const server = await createServer({
    configFile: false,
    root: `${import.meta.dirname}/../..`,
    logLevel: 'error',
    server: { port: 0, host: 'localhost', hmr: false },
    optimizeDeps: { noDiscovery: true },
  })
  await server.listen()
  const browser = await chromium.launch({
    executablePath: findBrowser(),
    args: browserFlags(values.adapter),
  })
  try {
    const page = await browser.newPage()
    await page.goto(`${server.resolvedUrls!.local[0]}bench/kernels/matmul.html`)
    await page.waitForFunction('globalThis.benchMatmul')
    for (const shapes of sets) {
      const options: MatmulBenchOptions = { shapes, preferredOnly: values.preferred }
      const rows = await page.evaluate(
        (given) =>
          (globalThis as unknown as { benchMatmul: typeof benchMatmul }).benchMatmul(given),
        options,
      )
      if (values.json) for (const row of rows) console.log(JSON.stringify(row))
      else {
        const { adapter, software } = rows[0]
        console.log(
          `\n${shapes}: ${adapter}${software ? ' (software adapter)' : ''}; * fixed table`,
        )
        console.log(table(rows))
      }
    }
  } finally {
    await browser.close()
    await server.close()
  }
}

main().catch((error) => {
  console.error(messageOf(error))
  process.exitCode = 1
})
