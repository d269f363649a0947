'use strict';

// The one implementation; index.mjs hands out the same function, so that both kinds of import share it.
module.exports = { startHeartbeat: require('./lib/heartbeat.cjs').startHeartbeat };
