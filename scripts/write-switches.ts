import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describeSwitches } from '../src/util/switches.ts'

/** Writes docs/switches.md from the one table. */
writeFileSync(join(import.meta.dirname, '..', 'docs', 'switches.md'), describeSwitches())
