import { printAsNode } from './distributed/launcher/node-console.ts'

/** Comes before all other modules of a rank's page and of each of its workers: `tabring run` puts it there. */

printAsNode(console)
