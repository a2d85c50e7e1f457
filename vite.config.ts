import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { defineConfig } from 'vite'
import { forPage, forWorkers } from './node/left-out.ts'
import { siteInputs, sitePages } from './node/site-pages.ts'
import { tabring } from './node/vite-plugin.ts'

/** Every page at the top level that is there, and the others, which are in no file. */
const pages = [
  ...['index.html', 'selftest.html', 'bench.html', 'tab.html'].filter((page) =>
    existsSync(join(import.meta.dirname, page)),
  ),
  ...siteInputs(),
]

/** Names of classes stay: errors, and what modules and optimizers say, carry theirs. */
const output = {
  minify: {
    compress: { keepNames: { class: true, function: false } },
    mangle: { keepNames: { class: true, function: false } },
  },
}

/** How long plugins take is nothing that a person who starts the page could change. */
const checks = { bundlerTimings: false }

export default defineConfig({
  // Relative addresses: the built pages work under any path.
  base: './',
  plugins: [tabring(), sitePages(), ...forPage()],
  worker: { format: 'es', plugins: forWorkers, rolldownOptions: { output, checks } },
  // Found late, behind a worker's import, they would reload a page that is in a room already.
  optimizeDeps: {
    include: [
      'comlink',
      'simple-peer/simplepeer.min.js',
      'valibot',
      'papaparse',
      'fast-png',
      '@noble/hashes/sha2.js',
      '@noble/hashes/utils.js',
      'gpt-tokenizer/esm/bpeRanks/r50k_base',
      'gpt-tokenizer/esm/encoding/r50k_base',
      '@huggingface/tokenizers',
      '@huggingface/jinja',
    ],
  },
  build: {
    // WebGPU and transferable data channels are newer than all of ES2023.
    target: 'es2023',
    // The libraries that the benchmark page compares with are large, and loaded when it does.
    chunkSizeWarningLimit: 2000,
    rolldownOptions: { input: pages, output, checks },
  },
})
