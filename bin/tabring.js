#!/usr/bin/env node
import { existsSync } from 'node:fs'

// In the repository the launcher is run from its sources; in the package it is built, into modules that need no loader.
const source = new URL('../node/tabring.ts', import.meta.url)
if (existsSync(source)) {
  const { register } = await import('tsx/esm/api')
  register()
  await import(source.href)
} else {
  await import('../dist-lib/launch/tabring.js')
}
