import { serveSamples } from './serve-samples.ts'

// The loader's own worker: it constructs the data set again from the loader's description.
serveSamples()
